"""Variants and epilogues are arguments of operators in one way, which this module holds: their
definitions are text, and their values and tensors have names."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .._numbers import integer, number

Kinds = tuple[tuple[str, type], ...]
_KINDS: dict[str, type] = {"i32": int, "f32": float}


class Traced:
    """Stands for a variant or an epilogue that is bound where PyTorch traces."""

    def __init__(self, text: str, values: tuple[float, ...], tensors: tuple[Any, ...]) -> None:
        self._parts = (text, values, tensors)


def declared(text: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The parameters, with their types, and the tensors of a variant's or an epilogue's
    definition."""
    definition = json.loads(text)
    params = tuple((name, kind) for name, kind in definition["params"])
    return params, tuple(name for name, _ in definition["tensors"])


def bound_values(
    op: str, name: str, text: str, given: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The values and the tensors of a variant or an epilogue, which `op` says, by their names."""
    params, tensors = declared(text)
    names = (*(one for one, _ in params), *tensors)
    expected = ", ".join(names) or "no values"
    for one in names:
        if one not in given:
            raise TypeError(f"{op} '{name}': missing {one}=; it takes {expected}")
    for one in given:
        if one not in names:
            raise TypeError(f"{op} '{name}': no parameter or tensor '{one}'; it takes {expected}")
    values = tuple(
        integer(op, one, given[one]) if kind == "i32" else number(op, one, given[one])
        for one, kind in params
    )
    return values, tuple(given[one] for one in tensors)


def traced_call(
    op: str, bind: Callable[..., Any], bind_traced: Callable[[Any, dict[str, Any]], Traced]
) -> Callable[..., Any]:
    """The function that replaces `bind`, the method __call__ of the class `op`: PyTorch's compiler
    traces no method of an extension."""

    @functools.wraps(bind)
    def traced(self: Any, *args: Any, **values: Any) -> Any:
        if torch.compiler.is_compiling() or any(
            isinstance(value, FakeTensor) for value in values.values()
        ):
            if args:
                raise TypeError(f"{op}: values are passed by name")
            return bind_traced(self, values)
        return bind(self, *args, **values)

    # PyTorch's compiler need not trace how JSON is read. (It must be imported to be told.)
    torch.compiler.assume_constant_result(declared)
    return traced


def kinds_of(definition: dict[str, Any]) -> tuple[Kinds, tuple[str, ...]]:
    """The parameters of a definition with their types of Python, and the names of its tensors."""
    params = tuple((name, _KINDS[kind]) for name, kind in definition["params"])
    return params, tuple(name for name, _ in definition["tensors"])


def by_name(params: Kinds, values: Iterable[Any]) -> dict[str, Any]:
    """An operator's numbers by the names of parameters; integers may have become floats there."""
    return {
        name: int(value) if kind is int and value == int(value) else value
        for (name, kind), value in zip(params, values)
    }
