"""GEMM with run-time epilogues as PyTorch operators: torch.ops.kiln.gemm_epilogue.

They take an epilogue's definition as text, a spec's field `epilogue`, and its values and tensors as
arguments, so that a graph holds neither. Their kernels are in Python and bind the epilogue again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch

from .. import _core, jit
from .._numbers import is_integer, number
from ._bound import Kinds, Traced, bound_values, by_name, kinds_of, traced_call
from ._schemas import SCHEMAS, Schema
from ._values import check, write_to

_OPERATION = "gemm"
_BIND = jit.Epilogue.__call__  # before trace_bindings() replaces it
# Scalars, as in _variants.py.
_ARGUMENTS = "*, str bound_epilogue, Scalar[] epilogue_values, Tensor[] epilogue_tensors, "
_SHORT_NAMES = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32",
    torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip


def _with_epilogue(schema: Schema) -> Schema:
    name = schema.name.replace(schema.operation, f"{schema.operation}_epilogue", 1)
    return schema._replace(name=name, text=schema.text.replace("*, ", _ARGUMENTS, 1))


EPILOGUE_SCHEMAS = tuple(_with_epilogue(s) for s in SCHEMAS if s.operation == _OPERATION)


class TracedEpilogue(Traced):
    """Stands for a BoundEpilogue."""


def bind_traced(epilogue: jit.Epilogue, given: dict[str, Any]) -> TracedEpilogue:
    """Binds values by name, as Epilogue.__call__ does."""
    values, tensors = bound_values("Epilogue", epilogue.name, epilogue._text, given)
    return TracedEpilogue(epilogue._text, values, tensors)


def trace_bindings() -> None:
    """Lets epilogues be bound in traced functions."""
    torch.compiler.assume_constant_result(_text_of)
    traced = traced_call("Epilogue", _BIND, bind_traced)
    jit.Epilogue.__call__ = traced  # type: ignore[method-assign]


def _text_of(value: str, params: tuple[str, ...], tensors: tuple[str, ...]) -> str:
    """The definition of an epilogue that was given as a string; the others are `name:type`."""

    def pairs(declared: tuple[str, ...]) -> list[list[str]]:
        return [list(one.rpartition(":")[::2]) for one in declared]

    definition = {"name": "epilogue", "params": pairs(params), "tensors": pairs(tensors)}
    return json.dumps({**definition, "value": value})


def _parts_of_text(
    value: str, params: Any, tensors: Any
) -> tuple[str, tuple[Any, ...], tuple[Any, ...]]:
    """What jit.gemm makes of a string with values: types are those of the values, and names are in
    their order."""
    params, tensors = params or {}, tensors or {}
    for name, values in (("params", params), ("tensors", tensors)):
        if not isinstance(values, dict):
            raise TypeError(
                f"{_OPERATION}: {name} must be a dict of names to values, got {values!r}"
            )
    check(_OPERATION, {f"epilogue's {name}": tensor for name, tensor in tensors.items()})
    kinds = []
    for name in sorted(params):
        number("gemm's epilogue", name, params[name])
        kinds.append(f"{name}:{'i32' if is_integer(params[name]) else 'f32'}")
    declared = []
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor.dtype not in _SHORT_NAMES:
            raise ValueError(
                f"gemm's epilogue: {name} must be float32, float16, bfloat16, int32, int64, uint8 "
                f"or bool, got {tensor.dtype}"
            )
        declared.append(f"{name}:{_SHORT_NAMES[tensor.dtype]}[{', '.join(['*'] * tensor.dim())}]")
    return (
        _text_of(value, tuple(kinds), tuple(declared)),
        tuple(params[name] for name in sorted(params)),
        tuple(tensors[name] for name in sorted(tensors)),
    )


def parts(epilogue: Any, params: Any, tensors: Any) -> dict[str, Any]:
    """The operators' arguments for what the three arguments were given."""
    if isinstance(epilogue, jit.Epilogue):
        epilogue = bind_traced(epilogue, {})
    if isinstance(epilogue, (_core.BoundEpilogue, TracedEpilogue)):
        if params or tensors:
            raise ValueError(
                "gemm: epilogue has values of its own; params and tensors are for a string"
            )
        text, values, bound = epilogue._parts
        check(_OPERATION, {f"epilogue's tensor {i}": tensor for i, tensor in enumerate(bound)})
    elif isinstance(epilogue, str):
        text, values, bound = _parts_of_text(epilogue, params, tensors)
    elif epilogue is None:
        raise ValueError("gemm: epilogue must be given with params or tensors, which it names")
    else:
        raise TypeError(
            "gemm: epilogue must be a string, or a jit.Epilogue with its values bound, such as "
            f"e(t=1.5), got {type(epilogue).__name__}"
        )
    return {
        "bound_epilogue": text,
        "epilogue_values": list(values),
        "epilogue_tensors": list(bound),
    }


@functools.lru_cache(maxsize=256)
def _epilogue(text: str) -> tuple[jit.Epilogue, Kinds, tuple[str, ...]]:
    """The epilogue of a definition, with the types of its parameters and its tensors' names."""
    epilogue = jit.Epilogue.__new__(jit.Epilogue)
    epilogue.__setstate__((text,))  # type: ignore[attr-defined]
    return (epilogue, *kinds_of(json.loads(text)))


def _bound(text: str, values: list[float], tensors: list[Any]) -> Any:
    """What `epilogue=` takes."""
    epilogue, params, names = _epilogue(text)
    if (len(values), len(tensors)) != (len(params), len(names)):
        raise ValueError(
            f"epilogue takes {len(params)} values and {len(names)} tensors, got {len(values)} and "
            f"{len(tensors)}"
        )
    return _BIND(epilogue, **by_name(params, values), **dict(zip(names, tensors)))


def kernel(schema: Schema) -> Callable[..., Any]:
    """The C entry as an operator's kernel."""
    entry = getattr(_core, schema.operation)

    def run(
        *args: Any, bound_epilogue: str, epilogue_values: Any, epilogue_tensors: Any, **kw: Any
    ) -> Any:
        kw["epilogue"] = _bound(bound_epilogue, epilogue_values, epilogue_tensors)
        result = entry(**dict(zip(schema.positional, args)), **kw)
        return result if schema.results else None

    return run


def call(
    op: str, inputs: tuple[Any, ...], epilogue: Any, params: Any, tensors: Any,
    options: dict[str, Any], out: Any,
) -> Any:  # fmt: skip
    """Calls the operator of an operation with an epilogue that has values."""
    options = {**options, **parts(epilogue, params, tensors), "epilogue": None}
    if out is None:
        return torch.ops.kiln.gemm_epilogue(*inputs, **options)
    write_to(torch.ops.kiln.gemm_epilogue_out, *inputs, **options, out=out)
    return out
