"""The values that a callable reads from outside: its closure, its defaults and the globals that
its code names. Two calls for which these are the same, apart from the elements of tensors, give one
trace."""

from __future__ import annotations

import builtins
import dis
import functools
import math
import types
from typing import Any

import torch

# Nothing of an object of these can change.
PLAIN_TYPES = (int, bool, float, str, bytes, types.NoneType, torch.dtype, torch.device)
MOST_ITEMS = 256  # of a container; what is in a longer one is not compared
STABLE_MODULES = ("torch", "math", "operator", "builtins", "functools", "numpy")


class Reads:
    """The values that were found. `key` decides, if `is_stable`, what a trace gives."""

    __slots__ = ("codes", "is_stable", "key", "tensors", "within")

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.tensors: list[torch.Tensor] = []  # in the order in which they are met
        # The functions' code. Whoever keeps the key keeps these, as it has their addresses.
        self.codes: list[types.CodeType] = []
        self.is_stable = True
        self.within: list[Any] = []  # the functions that are being looked at

    def look(self, value: Any) -> None:
        """Adds one value, and what it reads in turn."""
        look = _LOOKS.get(type(value))
        if look is not None:
            look(self, value)
        elif is_fixed(value):
            self.key.append(value)
        else:
            self.is_stable = False

    def _plain(self, value: Any) -> None:
        self.key.append((type(value), value))

    def _float(self, value: float) -> None:
        self.key.append((value, math.copysign(1.0, value)))

    def _tensor(self, tensor: torch.Tensor) -> None:
        place = 0
        while place < len(self.tensors) and self.tensors[place] is not tensor:
            place += 1
        if place == len(self.tensors):
            self.tensors.append(tensor)
        self.key.append((place, tensor.dtype, tensor.shape))

    def _items(self, value: Any) -> None:
        self._add(type(value), value)

    def _dict(self, value: dict[Any, Any]) -> None:
        self._add(dict, [item for pair in value.items() for item in pair])

    def _partial(self, value: functools.partial[Any]) -> None:
        self._add(type(value), [value.func, *value.args, *value.keywords.items()])

    def _add(self, kind: type, items: Any) -> None:
        self.key.append((kind, len(items)))
        if len(items) > MOST_ITEMS:
            self.is_stable = False
            return
        for item in items:
            self.look(item)

    def _function(self, function: types.FunctionType) -> None:
        if function in self.within:
            self.is_stable = False  # it calls itself
            return
        self.within.append(function)
        code = function.__code__
        names, is_open = globals_of(code)
        self.key.append(id(code))
        self.codes.append(code)
        if is_open:
            self.is_stable = False
        for cell in function.__closure__ or ():
            try:
                self.look(cell.cell_contents)
            except ValueError:  # not assigned yet
                self.key.append("empty cell")
        self.look(function.__defaults__)
        if function.__kwdefaults__:
            self.look(function.__kwdefaults__)
        for name in names:
            if name in function.__globals__:
                self.look(function.__globals__[name])
            elif not hasattr(builtins, name):
                self.key.append("no global")
        self.within.pop()

    def numbers_in_code(self) -> frozenset[tuple[type, Any]]:
        """The numbers that stand in the code of the functions that were found."""
        found: set[tuple[type, Any]] = set()
        for code in self.codes:
            found |= _constants_of(code)
        return frozenset(found)


_LOOKS: dict[type, Any] = {
    **dict.fromkeys(PLAIN_TYPES, Reads._plain),
    **dict.fromkeys((torch.Tensor, torch.nn.Parameter), Reads._tensor),
    **dict.fromkeys((tuple, list), Reads._items),
    float: Reads._float,
    dict: Reads._dict,
    functools.partial: Reads._partial,
    types.FunctionType: Reads._function,
}


def is_fixed(value: Any) -> bool:
    """Whether nothing that the module, type or function of C has is expected to change."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in STABLE_MODULES
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType)
    if isinstance(value, types.MethodDescriptorType):
        return True
    return isinstance(value, type) and value.__module__.partition(".")[0] in STABLE_MODULES


def reads_of(*callables: Any) -> Reads:
    """Returns the values that these callables read; each callable may be None."""
    reads = Reads()
    for function in callables:
        reads.look(function)
    return reads


@functools.lru_cache(maxsize=4096)
def globals_of(code: types.CodeType) -> tuple[tuple[str, ...], bool]:
    """The globals that a code object reads, and whether it reads what cannot be known here."""
    names: dict[str, None] = {}
    is_open = False
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[instruction.argval] = None
        is_open |= instruction.opname == "IMPORT_NAME"
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, inner_is_open = globals_of(constant)
            names.update(dict.fromkeys(inner))
            is_open |= inner_is_open
    return tuple(names), is_open


@functools.lru_cache(maxsize=4096)
def _constants_of(code: types.CodeType) -> frozenset[tuple[type, Any]]:
    found: set[tuple[type, Any]] = set()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _constants_of(constant)
        elif type(constant) in (int, float):
            found |= {(type(constant), constant), (type(constant), -constant)}
    # Small numbers are operands of instructions from Python 3.14 on.
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_SMALL_INT":
            found.add((int, instruction.argval))
    return frozenset(found)
