"""Which kernels calls would launch and specs name, by their keys: nothing is compiled or run."""

import kiln


def keys_of_call(name, *tensors, **options):
    """Of all launches of a call of jit.name."""
    found = kiln.explain(name, *tensors, **options)
    return {launch["key"] for launch in found.get("launches", [found])}


def keys_of_specs(specs, arch):
    return {kernel["key"] for kernel in kiln.prewarm(specs, arch, check=True)["kernels"]}
