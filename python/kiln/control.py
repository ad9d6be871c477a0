"""Everything around the operations: policy, statistics, prewarming, explanation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

from . import _core

Spec = Mapping[str, Any]
Specs = Union[Spec, Iterable[Spec], str]


def stats() -> dict[str, Any]:
    """Counters of this process: memory_hits, disk_hits per layer, misses, compiles, seconds, and
    whether NVRTC is loaded."""
    return json.loads(_core.stats())


def reset_stats() -> None:
    """Sets the counters of stats() to zero."""
    _core.reset_stats()


def clear_memory_cache() -> None:
    """Drops the kernels that this process holds; the disk keeps them."""
    _core.clear_memory_cache()


def set_jit(mode: str) -> str:
    """Sets the compile policy of the process and returns the previous one.

    "auto" compiles on a miss, "warn" also logs a warning, "off" raises kiln.CompileDisabled.
    """
    return _core.set_jit(mode)


def no_compile() -> _core.NoCompile:
    """A context in which this thread compiles nothing: a miss raises kiln.CompileDisabled."""
    return _core.NoCompile()


def set_log(callback: Callable[[int, str], object] | None) -> None:
    """Sends log lines to callback(level, text) instead of stderr; None restores stderr.

    Levels: 0 error, 1 warning, 2 info, 3 debug; KILN_LOG chooses how many there are.
    """
    _core.set_log(callback)


def explain(op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What jit.<op>(*args, **kwargs) would run, and why, without running it: the path, the config,
    the spec, the cache key and the layer that holds it."""
    entries = {
        "flash_attention": _core.explain_flash_attention,
        "gemm": _core.explain_gemm,
    }
    if op not in entries:
        raise ValueError(f"explain: op must be one of {', '.join(entries)}, got {op!r}")
    return json.loads(entries[op](*args, **kwargs))


def prewarm(
    specs: Specs,
    arch: str | Iterable[str] | None = None,
    jobs: int | None = None,
    recompile: bool = False,
    progress: Callable[[int, int, str, str, float], object] | None = None,
    *,
    check: bool = False,
) -> dict[str, Any]:
    """Compiles the kernels of `specs` into the cache. Needs no tensors and, given `arch`, no GPU.

    specs      one spec, several, or their JSON text; see kiln/data/spec.schema.json
    arch       "sm_90a", or several; default: those of the devices here
    jobs       compiles at a time; default: one per core
    recompile  also what the cache already has
    progress   called as progress(done, total, what, outcome, seconds)
    check      only reports what is missing

    Returns the report: total, compiled, cached, missing, failed, seconds and kernels. A kernel that
    does not compile is listed under "failed" and stops no other.
    """
    archs = [] if arch is None else [arch] if isinstance(arch, str) else list(arch)
    report = _core.prewarm(_specs_text(specs), archs, jobs or 0, recompile, check, progress)
    return json.loads(report)


def preload(spec: Spec | str, device: int = 0) -> None:
    """Makes the kernels of one spec resident on a device, so that a stream capture finds them."""
    _core.preload(_spec_text(spec), device)


def inspect(spec: Spec | str, arch: str) -> list[dict[str, Any]]:
    """Source, PTX, registers, shared memory and spills of each kernel that a spec stands for."""
    return json.loads(_core.inspect(_spec_text(spec), arch))


def enumerate_specs(arch: str) -> list[dict[str, Any]]:
    """Every spec that the built-in tables can give for an arch."""
    return json.loads(_core.enumerate_specs(arch))


def diagnose() -> dict[str, Any]:
    """What `kiln doctor` reports: driver, NVRTC, devices, cache and environment."""
    return json.loads(_core.diagnose())


def _specs_text(specs: Specs) -> str:
    if isinstance(specs, str):
        return specs
    return json.dumps([specs] if isinstance(specs, Mapping) else list(specs))


def _spec_text(spec: Spec | str) -> str:
    return spec if isinstance(spec, str) else json.dumps(spec)
