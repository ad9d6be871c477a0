"""Callables hold what they read in places: cells of closures and globals. As long as these hold the
same objects, and none of the objects can change, the callables read the same values."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .reads import PLAIN_TYPES, globals_of, is_fixed

_ABSENT = object()
_WEAK_TYPES = (torch.Tensor, torch.nn.Parameter, types.FunctionType)


class _Function:
    """One function's places keep what they held. Tensors and functions are referred to weakly:
    whoever looks must not keep them alive. An object that is compared by identity must be alive, or
    another one might have its address: numbers and the like are kept."""

    __slots__ = ("cells", "code", "function", "names", "weak_cells", "weak_names")

    def __init__(self, function: types.FunctionType) -> None:
        self.function = weakref.ref(function)
        self.code = function.__code__
        self.cells: list[tuple[int, Any]] = []
        self.weak_cells: list[tuple[int, weakref.ref[Any]]] = []
        self.names: list[tuple[str, Any]] = []
        self.weak_names: list[tuple[str, weakref.ref[Any]]] = []

    def holds(self) -> bool:
        function = self.function()
        if function is None or function.__code__ is not self.code:
            return False
        if function.__defaults__ is not None or function.__kwdefaults__:
            return False
        cells = function.__closure__ or ()
        try:
            for place, value in self.cells:
                if cells[place].cell_contents is not value:
                    return False
            for place, reference in self.weak_cells:
                known = reference()
                if known is None or cells[place].cell_contents is not known:
                    return False
        except ValueError:  # nothing is assigned any more
            return False
        found = function.__globals__.get
        for name, value in self.names:
            if found(name, _ABSENT) is not value:
                return False
        for name, reference in self.weak_names:
            known = reference()
            if known is None or found(name) is not known:
                return False
        return True


class Places:
    """The places of some callables."""

    __slots__ = ("_functions",)

    def __init__(self, functions: list[_Function]) -> None:
        self._functions = functions

    def hold_the_same(self) -> bool:
        """Whether each place holds the object that it held when it was looked at."""
        return all(map(_Function.holds, self._functions))


def places_of(*callables: Callable[..., Any] | None) -> Places | None:
    """Returns the places of these callables and of the functions that they hold, or None where an
    object can change that one of them holds, such as a list."""
    functions: list[_Function] = []
    waiting: list[Any] = [function for function in callables if function is not None]
    known: set[int] = set()
    while waiting:
        function = waiting.pop()
        if id(function) in known:
            continue
        known.add(id(function))
        if type(function) is not types.FunctionType:
            return None
        if function.__defaults__ is not None or function.__kwdefaults__:
            return None
        found = _Function(function)
        for place, cell in enumerate(function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:
                return None
            if not _add(value, place, found.cells, found.weak_cells, waiting):
                return None
        names, is_open = globals_of(function.__code__)
        if is_open:
            return None
        for name in names:
            value = function.__globals__.get(name, _ABSENT)
            if not _add(value, name, found.names, found.weak_names, waiting):
                return None
        functions.append(found)
    return Places(functions)


def _add(
    value: Any, place: Any, kept: list[Any], weak: list[Any], waiting: list[types.FunctionType]
) -> bool:
    if type(value) in _WEAK_TYPES:
        weak.append((place, weakref.ref(value)))
        if type(value) is types.FunctionType:
            waiting.append(value)
    elif value is _ABSENT or type(value) in PLAIN_TYPES or is_fixed(value):
        kept.append((place, value))
    else:
        return False
    return True
