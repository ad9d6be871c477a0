"""Tells torch.compile, when it is first used, what replaces the C entries of kiln.jit.

torch._dynamo takes over a second to import, so it is not imported for this: whoever imports it,
before or after kiln, gets it with kiln.operators registered.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

_DYNAMO = "torch._dynamo"


def install() -> None:
    """Registers now if torch._dynamo is imported already, and otherwise when it is imported."""
    if _DYNAMO in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _Finder())


def _register() -> None:
    import torch

    # PyTorch before 2.5 has no such interface, so its compiler breaks the graph at our calls.
    if not hasattr(torch.compiler, "substitute_in_graph"):
        return
    from . import operators
    from .operators import _epilogues, _variants

    for entry, traced in operators.TRACED.items():
        torch.compiler.substitute_in_graph(entry)(traced)
    _variants.trace_bindings()
    _epilogues.trace_bindings()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torch._dynamo as usual, and adds a step after its import."""

    _looking = False

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _DYNAMO or self._looking:
            return None
        self._looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader, as if this finder did not exist.
        assert module.__spec__ is not None  # made of one
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        # Once: a program that only looked for the module may import it a second time.
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _register()
