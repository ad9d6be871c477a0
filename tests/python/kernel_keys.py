"""These tell by their keys which kernels calls would launch and specs name, without a compile."""

import kiln


def keys_of_call(name, *tensors, **options):
    """Returns the keys of all launches of a call of jit.name."""
    found = kiln.explain(name, *tensors, **options)
    return {launch["key"] for launch in found.get("launches", [found])}


def keys_of_specs(specs, arch):
    """Returns the keys of all kernels that the specs name."""
    return {kernel["key"] for kernel in kiln.prewarm(specs, arch, check=True)["kernels"]}
