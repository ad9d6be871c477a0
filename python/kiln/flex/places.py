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

# Where a function holds an object, and the object or a weak reference to it: whoever looks must not
# keep tensors and functions alive. A name that no global has stands alone.
Place = tuple[Any, Any] | tuple[str]
# A function, its cells by their numbers, and its globals by their names.
Held = tuple[types.FunctionType, list[Place], list[Place]]


def places_of(*callables: Callable[..., Any] | None) -> list[Held] | None:
    """Returns the places of these callables and of the functions that they hold, or None where an
    object can change that one of them holds, such as a list."""
    functions: list[Held] = []
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
        cells: list[Place] = []
        for number, cell in enumerate(function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:
                return None
            if not _add(number, value, cells, waiting):
                return None
        names, is_open = globals_of(function.__code__)
        if is_open:
            return None
        found: list[Place] = []
        for name in names:
            if not _add(name, function.__globals__.get(name, _ABSENT), found, waiting):
                return None
        functions.append((function, cells, found))
    return functions


def _add(where: Any, value: Any, places: list[Place], waiting: list[types.FunctionType]) -> bool:
    if value is _ABSENT:
        places.append((where,))
    elif type(value) in _WEAK_TYPES:
        places.append((where, weakref.ref(value)))
        if type(value) is types.FunctionType:
            waiting.append(value)
    elif type(value) in PLAIN_TYPES or is_fixed(value):
        places.append((where, value))
    else:
        return False
    return True
