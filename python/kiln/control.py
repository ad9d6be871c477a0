"""The functions beside the operations: policy, statistics, prewarming, explanation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex, Union

from . import _core, jit

MAX_JOBS = 4096  # each job is a thread

Spec = Mapping[str, Any]
Specs = Union[Spec, Iterable[Spec], str]


def stats() -> dict[str, Any]:
    """Returns the counters of this process since its start, or since reset_stats().

    memory_hits        calls whose kernel was loaded already
    disk_hits          kernels read from disk, one number for each cache folder in order
    misses, compiles   kernels that no cache had; kernels that were compiled
    compile_seconds, load_seconds   time spent compiling; time spent loading kernels onto devices
    kernels_resident   kernels that are loaded now (not a counter)
    nvrtc_loaded       whether this process has loaded NVRTC

        >>> import kiln, numpy
        >>> from kiln import jit
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

    >>> import kiln
    >>> kiln.reset_stats()
    >>> kiln.stats()["misses"]
    0
    """
    _core.reset_stats()


def clear_memory_cache() -> None:
    """Forgets which kernels are loaded, so that each is looked up on disk again.

    This frees no memory: a kernel that was loaded stays loaded until the process ends, because
    another thread may be about to launch it.

        >>> import kiln, numpy
        >>> from kiln import jit
        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> out = jit.gemm(a, a)
        >>> kiln.clear_memory_cache()
        >>> kiln.explain("gemm", a, a)["layer"] == "memory"
        False
    """
    _core.clear_memory_cache()


def set_jit(mode: str) -> str:
    """Sets the compile policy of the process and returns the previous one.

    On a miss, "auto" compiles, "warn" compiles and logs a warning, and "off" raises
    kiln.CompileDisabled. The environment variable KILN_JIT sets the initial policy. Raises
    ValueError for any other mode.

        >>> import kiln
        >>> previous = kiln.set_jit("off")
        >>> kiln.set_jit(previous)
        'off'
    """
    if not isinstance(mode, str):
        raise TypeError(f"set_jit: mode must be auto, warn or off, got {mode!r}")
    return _core.set_jit(mode)


def no_compile() -> _core.NoCompile:
    """Returns a context in which this thread compiles nothing: a miss raises kiln.CompileDisabled.

    >>> import kiln, numpy
    >>> from kiln import jit
    >>> a = numpy.ones((16, 16), numpy.float16)
    >>> out = jit.gemm(a, a)  # compiles, or reads the disk
    >>> with kiln.no_compile():
    ...     out = jit.gemm(a[:7, :8], a[:8])  # other sizes: the same kernel
    """
    return _core.NoCompile()


def set_log(callback: Callable[[int, str], object] | None) -> None:
    """Sends log lines to callback(level, text) instead of stderr; None restores stderr.

    Levels: 0 error, 1 warning, 2 info, 3 debug. KILN_LOG sets the highest level that is logged.

        >>> import kiln
        >>> lines = []
        >>> kiln.set_log(lambda level, text: lines.append((level, text)))
        >>> kiln.set_log(None)
    """
    _core.set_log(callback)


def explain(op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Returns what jit.<op>(*args, **kwargs) would run, and why, without running it.

    op     the operation's name, such as "gemm"; the other arguments are those of the operation

    The result is a dict. Its most useful fields:

    path       "portable", or "sm_90a" for the kernels that use Hopper's own instructions
    config     the tile; `why` says why this path and this tile were chosen
    spec       the spec, as kiln.prewarm, preload and inspect take it
    key        the cache key; `layer` says where its entry is: "memory", a folder, or None
    splits     how many blocks share an output tile, from tile `whole_tiles` on if that is not 0;
               they exchange their parts through a workspace of `workspace_bytes`

    Raises the errors of the operation for such arguments, and ValueError for an unknown op.

        >>> import kiln, numpy
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
    group: Any = None,
) -> dict[str, Any]:
    """Compiles the kernels of `problems` into the cache, without tensors and, if `arch` is given,
    without a GPU.

    problems   one spec, several, or their JSON text; see kiln/data/spec.schema.json
    arch       "sm_90a", or several; default: the architectures of this machine's devices
    jobs       how many kernels are compiled at a time; default: one per core
    recompile  also compiles what the cache has already
    progress   is called as progress(done, total, what, outcome, seconds)
    check      only reports what is missing
    group      a process group of torch.distributed, all of whose ranks make this call: its first
               rank compiles, and the kernels are sent to the caches of the others

    Returns a report with total, compiled, cached, missing, failed, seconds and kernels. A kernel
    that does not compile is listed under "failed", and the others are compiled nevertheless. Raises
    ValueError for a wrong spec or an unknown arch. docs/prewarm.md lists the fields of a spec. With
    a group, every rank returns the report of the first; if this rank fails, if a rank cannot store
    the kernels, or if the ranks then have different ones, every rank raises.

        >>> import kiln
        >>> spec = {"op": "gemm", "dtype": "float16", "block_m": 32, "stages": 4}
        >>> report = kiln.prewarm(spec, "sm_80")
        >>> report["compiled"] + report["cached"] == report["total"], report["failed"]
        (True, [])
    """

    def here() -> dict[str, Any]:
        archs, text = arch_names(arch), _specs_text(problems)
        for name, flag in (("recompile", recompile), ("check", check)):
            if not isinstance(flag, bool):
                raise TypeError(f"prewarm: {name} must be True or False, got {flag!r}")
        if check and recompile:
            raise ValueError("prewarm: give check or recompile, not both: check compiles nothing")
        return json.loads(_core.prewarm(text, archs, _jobs(jobs), recompile, check, progress))

    if group is None:
        return here()
    if check:
        raise ValueError("prewarm: give check or group, not both; each rank can check on its own")
    from . import group_prewarm  # which needs PyTorch

    return group_prewarm.prewarm_group(group, here)


def preload(spec: Spec | str, device: int | None = None) -> None:
    """Loads the kernels of one spec onto a device, so that a stream capture finds them.

    device  ordinal of a CUDA device; default: the emulated device if it was chosen or if there is
            no driver, else CUDA device 0

    Compiles what the cache lacks. Raises ValueError for a wrong spec, and the errors of a call if a
    kernel can be neither compiled nor loaded.

        >>> import kiln, numpy
        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> kiln.preload(kiln.explain("gemm", a, a)["spec"])
        >>> kiln.explain("gemm", a, a)["layer"]
        'memory'
    """
    if not isinstance(device, (SupportsIndex, type(None))) or isinstance(device, bool):
        raise TypeError(f"preload: device must be the ordinal of a CUDA device, got {device!r}")
    _core.preload(_spec_text(spec), device)


def inspect(spec: Spec | str, arch: str, *, compile: bool = True) -> list[dict[str, Any]]:
    """Returns what each kernel of a spec is made of. Compiles what the cache lacks.

    Each result has `what`, `config`, `path`, `why`, `key`, `spec`, `source`, `threads` and
    `dynamic_shared_bytes`; with `compile=False`, which takes milliseconds, nothing else. Else also
    `ptx`, `registers`, `spill_bytes`, `local_bytes` and `cubin_bytes`; `compile_seconds`,
    `nvrtc_version`, `warnings`; `cubin`, as bytes. Raises ValueError for a wrong spec or an unknown
    arch, and kiln.CompileError for a kernel that does not compile.

        >>> import kiln
        >>> spec = {"op": "gemm", "dtype": "float16", "block_m": 32, "stages": 4}
        >>> kernels = kiln.inspect(spec, "sm_80")
        >>> [kernel["spill_bytes"] for kernel in kernels], "mma.sync" in kernels[0]["ptx"]
        ([0], True)
    """
    text, arch = _spec_text(spec), _arch_name("inspect", arch)
    if not compile:
        return json.loads(_core.inspect_source(text, arch))
    report, cubins = _core.inspect(text, arch)
    return [{**kernel, "cubin": cubin} for kernel, cubin in zip(json.loads(report), cubins)]


def enumerate_specs(arch: str) -> list[dict[str, Any]]:
    """Returns every spec that the built-in tables can give for an arch, one kernel each.

    >>> import kiln
    >>> specs = kiln.enumerate_specs("sm_90a")
    >>> "gemm" in {spec["op"] for spec in specs}
    True
    """
    return json.loads(_core.enumerate_specs(_arch_name("enumerate_specs", arch)))


def gemm_configs(*, arch: str, k: int | None = None, **properties: Any) -> list[dict[str, int]]:
    """Returns the tiles that jit.gemm chooses among, in the form that its `config=` takes.

    arch        such as "sm_90a"
    k           K of the product: a tile whose blocks share K is listed once for each possible
                number of blocks, and a short K allows fewer
    properties  the fields of a spec (dtype, out_dtype, layout, bias, ...; docs/prewarm.md) but for
                the tile

    Raises ValueError for properties that no kernel has.

        >>> import kiln, numpy
        >>> from kiln import jit
        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> configs = kiln.gemm_configs(arch="sm_90a", dtype="float16", layout="nt", k=16)
        >>> out = jit.gemm(a, a.T, config=configs[0])
    """
    if k is not None and (not isinstance(k, int) or isinstance(k, bool) or not 1 <= k < 2**31):
        raise ValueError(f"gemm_configs: k must be a whole number from 1 on, got {k!r}")
    spec = json.dumps({"op": "gemm", **properties})
    return json.loads(_core.gemm_configs(spec, _arch_name("gemm_configs", arch), k or 0))


def set_tuning(path: str | os.PathLike[str] | None) -> str | None:
    """Sets the table of measured tiles, a file of `kiln tune`, that jit.gemm and
    jit.flash_attention ask before their built-in choice, and returns the path of the previous
    table. None removes the table.

    The table applies to the whole process, as KILN_TUNING does. Raises ValueError for a file that
    cannot be read or is not such a table; the previous table then stays.

        >>> import kiln
        >>> previous = kiln.set_tuning(None)
        >>> kiln.set_tuning(previous) is None
        True
    """
    return _core.set_tuning("" if path is None else os.fspath(path)) or None


def diagnose() -> dict[str, Any]:
    """Returns what `kiln doctor` reports: driver, NVRTC, devices, cache and environment.

    It raises no errors: the `problem` fields of the report say what is missing.

        >>> import kiln
        >>> report = kiln.diagnose()
        >>> report["version"] == kiln.__version__, report["nvrtc"]["problem"]
        (True, '')
    """
    return json.loads(_core.diagnose())


def arch_names(arch: Any) -> list[str]:
    """The archs that an argument names: none, one, or several."""
    if arch is None:
        return []
    archs = list(arch) if isinstance(arch, Iterable) and not isinstance(arch, str) else [arch]
    return [_arch_name("prewarm", one) for one in archs]


def _arch_name(op: str, arch: Any) -> str:
    if not isinstance(arch, str):
        raise TypeError(f'{op}: arch must be a name such as "sm_90a", got {arch!r}')
    return arch


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
