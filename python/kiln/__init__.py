"""Kiln: GPU kernel templates that are compiled at run time.

    import numpy
    from kiln import jit
    q = k = v = numpy.ones((1, 16, 2, 64), numpy.float16)
    out = jit.flash_attention(q, k, v, causal=True)

Importing Kiln loads neither the driver nor NVRTC. The first call that needs them does.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import _core, _site, _tracing, jit
from ._core import CompileDisabled, CompileError, CudaError, EmulatorError, Error
from .bundle import export_cache, import_cache
from .compile_events import on_compile
from .control import (
    clear_memory_cache,
    diagnose,
    enumerate_specs,
    explain,
    gemm_configs,
    inspect,
    no_compile,
    preload,
    prewarm,
    reset_stats,
    set_jit,
    set_log,
    set_tuning,
    stats,
)
from .devices import device
from .emulation import TensorMap, emulate

__version__ = _core.version()

__all__ = [
    "CompileDisabled",
    "CompileError",
    "CudaError",
    "EmulatorError",
    "Error",
    "TensorMap",
    "clear_memory_cache",
    "device",
    "diagnose",
    "emulate",
    "enumerate_specs",
    "explain",
    "export_cache",
    "gemm_configs",
    "import_cache",
    "inspect",
    "jit",
    "no_compile",
    "on_compile",
    "preload",
    "prewarm",
    "reset_stats",
    "set_jit",
    "set_log",
    "set_tuning",
    "stats",
]


def __getattr__(name: str) -> Any:
    """kiln.variants, which is imported when it is first asked for."""
    if name == "variants":
        return importlib.import_module(".variants", __name__)
    raise AttributeError(f"module 'kiln' has no {name!r}")


_core.set_python_paths(_site.nvidia_folders())
_tracing.install()
