"""Being told about compiles: kiln.on_compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _core


class CompileListener:
    """The result of on_compile: remove() ends it, and so does the end of a `with` block."""

    def __init__(self, number: int) -> None:
        self._number = number

    def remove(self) -> None:
        """Ends the calls; further removals do nothing. One that is under way on another thread may
        still end after this."""
        _core.remove_on_compile(self._number)

    def __enter__(self) -> CompileListener:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def on_compile(callback: Callable[[dict[str, Any]], object]) -> CompileListener:
    """Calls callback(event) after each compile and each miss of this process, until the listener
    that it returns is removed.

    `event` is a dict:

    what     the kernel in words; `arch`, such as "sm_90a"; `key`, its cache key
    spec     the spec of this one kernel, as kiln.prewarm and preload take it
    outcome  "compiled"; "refused" if compiling is off or the stream is being captured; "failed"
    why      "not in the cache", "prewarm", "inspect", ...
    seconds  that compiling took, 0.0 if nothing was compiled

    The callback runs on the thread that missed the kernel: it may call Kiln. But inside a call
    whose NumPy arrays are copied to a GPU, it may not compute further NumPy arrays there, which
    raises kiln.Error. What it raises is logged and changes nothing else. Several threads may call
    it at a time. Raises TypeError for a callback that cannot be called.

        >>> import kiln, numpy
        >>> from kiln import jit
        >>> a = numpy.ones((16, 16), numpy.float16)
        >>> out = jit.gemm(a, a)
        >>> events = []
        >>> with kiln.on_compile(events.append):
        ...     out = jit.gemm(a, a)  # the kernel is loaded: nothing is missed
        >>> events
        []
    """
    return CompileListener(_core.on_compile(callback))
