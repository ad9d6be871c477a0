"""Everything around the operations: policy, statistics, prewarming, explanation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

from . import _core, jit

MAX_JOBS = 4096  # a thread each

Spec = Mapping[str, Any]
Specs = Union[Spec, Iterable[Spec], str]


def stats() -> dict[str, Any]:
    """Counters of this process since its start, or since reset_stats().

    memory_hits        calls whose kernel was resident
    disk_hits          kernels read from disk, a number for each cache folder in order
    misses, compiles   kernels found nowhere; kernels compiled
    compile_seconds, load_seconds   spent compiling; spent loading kernels onto devices
    kernels_resident   loaded now (not a counter)
    nvrtc_loaded       whether this process has loaded NVRTC

        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> out = jit.gemm(a, a)
        >>> kiln.reset_stats()
        >>> out = jit.gemm(a, a)
        >>> kiln.stats()["memory_hits"], kiln.stats()["compiles"]
        (1, 0)
    """
    return json.loads(_core.stats())


def reset_stats() -> None:
    """Sets the counters of stats() to zero.

    >>> kiln.reset_stats()
    >>> kiln.stats()["misses"]
    0
    """
    _core.reset_stats()


def clear_memory_cache() -> None:
    """Makes every kernel be looked up again; the disk keeps them.

    The kernels that were loaded stay so until the process ends, as another thread may be about to
    launch one: this frees no memory.

        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> out = jit.gemm(a, a)
        >>> kiln.clear_memory_cache()
        >>> kiln.explain("gemm", a, a)["layer"] == "memory"
        False
    """
    _core.clear_memory_cache()


def set_jit(mode: str) -> str:
    """Sets the compile policy of the process and returns the previous one.

    "auto" compiles on a miss, "warn" also logs a warning, "off" raises kiln.CompileDisabled.
    KILN_JIT sets it from outside. Raises ValueError for other words.

        >>> previous = kiln.set_jit("off")
        >>> kiln.set_jit(previous)
        'off'
    """
    if not isinstance(mode, str):
        raise TypeError(f"set_jit: mode must be auto, warn or off, got {mode!r}")
    return _core.set_jit(mode)


def no_compile() -> _core.NoCompile:
    """A context in which this thread compiles nothing: a miss raises kiln.CompileDisabled.

    >>> a = numpy.ones((16, 16), numpy.float16)
    >>> out = jit.gemm(a, a)  # compiles, or reads the disk
    >>> with kiln.no_compile():
    ...     out = jit.gemm(a[:7, :8], a[:8])  # other sizes: the same kernel
    """
    return _core.NoCompile()


def set_log(callback: Callable[[int, str], object] | None) -> None:
    """Sends log lines to callback(level, text) instead of stderr; None restores stderr.

    Levels: 0 error, 1 warning, 2 info, 3 debug; KILN_LOG chooses how many there are.

        >>> lines = []
        >>> kiln.set_log(lambda level, text: lines.append((level, text)))
        >>> kiln.set_log(None)
    """
    _core.set_log(callback)


def explain(op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What jit.<op>(*args, **kwargs) would run, and why, without running it.

    op     the operation's name, such as "gemm"; the rest as it takes it

    Returns a dict, of which the most used:

    path       "portable", or "sm_90a" for the kernels of Hopper's own instructions
    config     the tile; `why` says why this path and this tile
    spec       what kiln.prewarm, preload and inspect take
    key        of the cache; `layer` says where it lies: "memory", a folder, or None
    splits     blocks that share an output tile, of `whole_tiles` on if that is not 0, and meet in a
               workspace of `workspace_bytes`

    Raises what the operation raises for such arguments, and ValueError for another op.

        >>> a = numpy.ones((64, 256), numpy.float16)
        >>> call = kiln.explain("gemm", a, a.T)
        >>> call["path"], call["spec"]["layout"]
        ('sm_90a', 'nt')
    """
    names = [name for name in jit.__all__ if hasattr(_core, f"explain_{name}")]
    entries = {name: getattr(_core, f"explain_{name}") for name in names}
    if op not in entries:
        raise ValueError(f"explain: op must be one of {', '.join(entries)}, got {op!r}")
    return json.loads(entries[op](*args, **kwargs))


def prewarm(
    problems: Specs,
    arch: str | Iterable[str] | None = None,
    jobs: int | None = None,
    recompile: bool = False,
    progress: Callable[[int, int, str, str, float], object] | None = None,
    *,
    check: bool = False,
) -> dict[str, Any]:
    """Compiles the kernels of `problems` into the cache: no tensors and, given `arch`, no GPU.

    problems   one spec, several, or their JSON text; see kiln/data/spec.schema.json
    arch       "sm_90a", or several; default: those of the devices here
    jobs       compiles at a time; default: one per core
    recompile  also what the cache already has
    progress   called as progress(done, total, what, outcome, seconds)
    check      only reports what is missing

    Returns the report: total, compiled, cached, missing, failed, seconds and kernels. A kernel that
    does not compile is listed under "failed" and stops no other. Raises ValueError for a spec or an
    arch that is none; docs/prewarm.md lists the fields of a spec.

        >>> spec = {"op": "gemm", "dtype": "float16", "block_m": 32, "stages": 4}
        >>> report = kiln.prewarm(spec, "sm_80")
        >>> report["compiled"] + report["cached"] == report["total"], report["failed"]
        (True, [])
    """
    archs = [] if arch is None else [arch] if isinstance(arch, str) else _archs(arch)
    text = _specs_text(problems)
    return json.loads(_core.prewarm(text, archs, _jobs(jobs), recompile, check, progress))


def preload(spec: Spec | str, device: int | None = None) -> None:
    """Makes the kernels of one spec resident on a device, so that a stream capture finds them.

    device  ordinal of a CUDA device; default: the emulated one where it was chosen or stands in for
            a missing driver, else CUDA device 0

    Compiles what the cache lacks. Raises ValueError for a spec that is none, and what a call would
    raise for a kernel that cannot be had.

        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> kiln.preload(kiln.explain("gemm", a, a)["spec"])
        >>> kiln.explain("gemm", a, a)["layer"]
        'memory'
    """
    _core.preload(_spec_text(spec), device)


def inspect(spec: Spec | str, arch: str) -> list[dict[str, Any]]:
    """What each kernel that a spec stands for is made of; compiles what the cache lacks.

    Each has `what`, `config`, `path`, `why`, `key`, `spec`; `source` and `ptx`; `registers` and
    `threads`; `dynamic_shared_bytes`, `spill_bytes`, `local_bytes` and `cubin_bytes`;
    `compile_seconds`, `nvrtc_version`, `warnings`; `cubin`, as bytes. Raises ValueError for a spec
    or an arch that is none, kiln.CompileError for what does not compile.

        >>> spec = {"op": "gemm", "dtype": "float16", "block_m": 32, "stages": 4}
        >>> kernels = kiln.inspect(spec, "sm_80")
        >>> [kernel["spill_bytes"] for kernel in kernels], "mma.sync" in kernels[0]["ptx"]
        ([0], True)
    """
    report, cubins = _core.inspect(_spec_text(spec), arch)
    return [{**kernel, "cubin": cubin} for kernel, cubin in zip(json.loads(report), cubins)]


def enumerate_specs(arch: str) -> list[dict[str, Any]]:
    """Every spec that the built-in tables can give for an arch, one kernel each.

    >>> specs = kiln.enumerate_specs("sm_90a")
    >>> "gemm" in {spec["op"] for spec in specs}
    True
    """
    return json.loads(_core.enumerate_specs(arch))


def gemm_configs(*, arch: str, k: int | None = None, **properties: Any) -> list[dict[str, int]]:
    """The tiles that jit.gemm chooses among, each as its `config=` takes it.

    arch        such as "sm_90a"
    k           of the product: a tile whose blocks share K is listed once for each number of them,
                which a short K limits
    properties  as a spec has them (dtype, out_dtype, layout, bias, ...; docs/prewarm.md), no tile

    Raises ValueError for properties that no kernel has.

        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> configs = kiln.gemm_configs(arch="sm_90a", dtype="float16", layout="nt", k=16)
        >>> out = jit.gemm(a, a.T, config=configs[0])
    """
    if k is not None and (not isinstance(k, int) or isinstance(k, bool) or not 1 <= k < 2**31):
        raise ValueError(f"gemm_configs: k must be a whole number from 1 on, got {k!r}")
    spec = json.dumps({"op": "gemm", **properties})
    return json.loads(_core.gemm_configs(spec, arch, k or 0))


def set_tuning(path: str | os.PathLike[str] | None) -> str | None:
    """Makes jit.gemm ask a measured table of tiles, a file of `kiln tune gemm`, before its model;
    None: no table. For the whole process, as KILN_TUNING does; returns the previous one's path.

    Raises ValueError for a file that cannot be read or is no such table; the previous one stays.

        >>> previous = kiln.set_tuning(None)
        >>> kiln.set_tuning(previous) is None
        True
    """
    return _core.set_tuning("" if path is None else os.fspath(path)) or None


def diagnose() -> dict[str, Any]:
    """What `kiln doctor` reports: driver, NVRTC, devices, cache and environment.

    Raises nothing: what is missing is in the report's `problem` fields.

        >>> report = kiln.diagnose()
        >>> report["version"] == kiln.__version__, report["nvrtc"]["problem"]
        (True, '')
    """
    return json.loads(_core.diagnose())


def _archs(arch: Any) -> list[str]:
    archs = list(arch) if isinstance(arch, Iterable) else [arch]
    for one in archs:
        if not isinstance(one, str):
            raise TypeError(f'prewarm: arch must be a name such as "sm_90a", got {one!r}')
    return archs


def _jobs(jobs: Any) -> int:
    if jobs is None:
        return 0
    if not isinstance(jobs, int) or isinstance(jobs, bool):
        raise TypeError(f"prewarm: jobs must be a whole number, got {jobs!r}")
    if not 0 <= jobs <= MAX_JOBS:
        raise ValueError(f"prewarm: jobs must be 0 (one per core) to {MAX_JOBS}, got {jobs}")
    return jobs


def _specs_text(specs: Specs) -> str:
    if isinstance(specs, str):
        return specs
    if not isinstance(specs, Iterable):
        raise TypeError(f"prewarm: problems must be a spec or several, got {specs!r}")
    return json.dumps([specs] if isinstance(specs, Mapping) else list(specs))


def _spec_text(spec: Spec | str) -> str:
    return spec if isinstance(spec, str) else json.dumps(spec)
