"""Vectors: rows of tensors, of which a callable computes element by element and then reduces what
it has to a scalar, by a loop in the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import arithmetic
from .nodes import INDEX, Node, constant, convert
from .symbols import Rows, Stub, Symbol, is_number
from .tracer import Tracer


class Vector(Stub):
    """A tensor of one dimension. `node` is its element at INDEX, or every one if `length` is 1."""

    ndim = 1

    def __init__(self, tracer: Tracer, node: Node, length: int) -> None:
        self.tracer, self.node, self.length = tracer, node, length

    def _said(self) -> str:
        return f"a computed tensor of shape [{self.length}]"

    @property
    def shape(self) -> torch.Size:
        """One dimension."""
        return torch.Size([self.length])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that PyTorch would give it."""
        return self.node.dtype

    def dim(self) -> int:
        """One."""
        return 1

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length."""
        return self.shape if dim is None else self.shape[dim]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        raise self.tracer.refuse(
            f"indexes {self._said()}; index what it is computed of, or reduce it"
        )


def vector_of(tracer: Tracer, value: Any) -> Vector | None:
    """The vector that a row of a tensor, or a captured tensor of one dimension, is."""
    if isinstance(value, Vector):
        return value
    if isinstance(value, Rows):
        tensor, known = value.tensor, value.indices
    elif isinstance(value, torch.Tensor):
        tensor, known = value, ()
    else:
        return None
    if tensor.dim() != len(known) + 1 or tensor.size(-1) == 0:
        return None
    length = tensor.size(-1)
    place = constant(0, torch.int32) if length == 1 else INDEX
    return Vector(tracer, tracer.element(tensor, (*known, place)), length)


def each(
    tracer: Tracer, operation: Callable[..., Node], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Vector | Node:
    """The operation of scalars on each element: of its vectors and scalars, one of which a vector
    of one element stands for."""
    vectors: list[Vector] = []

    def scalar(value: Any) -> Any:
        vector = vector_of(tracer, value)
        if vector is None:
            return value
        vectors.append(vector)
        return Symbol(tracer, vector.node)

    node = operation(tracer, *map(scalar, args), **{k: scalar(v) for k, v in kwargs.items()})
    if not vectors:
        return node
    lengths = sorted({vector.length for vector in vectors} - {1})
    if len(lengths) > 1:
        raise _lengths_differ(tracer, *lengths)
    return Vector(tracer, node, lengths[0] if lengths else 1)


def _lengths_differ(tracer: Tracer, first: int, second: int, *_: int) -> TypeError:
    return tracer.refuse(
        f"computes with tensors of {first} and {second} elements; they must have the same length"
    )


def _sum(tracer: Tracer, input: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    vector = _along(tracer, "sum", input, dim)
    dtype = kwargs.get("dtype") or (vector.dtype if vector.node.is_float else torch.int64)
    return _joined(vector, "sum_of", dtype, keepdim)


def _mean(tracer: Tracer, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    vector = _along(tracer, "mean", input, dim)
    if not vector.node.is_float:
        raise tracer.refuse(f"calls mean() of {vector.dtype}; convert it with .float()")
    total = _joined(vector, "sum_of", vector.dtype, False)
    quotient = arithmetic.divide(total.node, tracer.count(vector.length))
    return Vector(tracer, quotient, 1) if keepdim else Symbol(tracer, quotient)


def _truth(name: str) -> Callable[..., Any]:
    def reduce(tracer: Tracer, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return _joined(_along(tracer, name, input, dim), f"{name}_of", torch.bool, keepdim)

    return reduce


def _extreme(name: str, function: str) -> Callable[..., Any]:
    def reduce(tracer: Tracer, input: Any, dim: Any = None, keepdim: bool = False) -> Any:
        vector = _along(tracer, name, input, dim)
        if dim is not None and name in ("max", "min"):
            raise tracer.refuse(
                f"calls {name}() with dim=, which has two results; call amax() or amin()"
            )
        return _joined(vector, function, vector.dtype, keepdim)

    return reduce


def _dot(tracer: Tracer, input: Any, other: Any) -> Any:
    first, second = _along(tracer, "dot", input, None), _along(tracer, "dot", other, None)
    if first.length != second.length:
        raise _lengths_differ(tracer, first.length, second.length)
    product = arithmetic.multiply(first.node, second.node)
    return _joined(Vector(tracer, product, first.length), "sum_of", product.dtype, False)


def _isin(tracer: Tracer, elements: Any, test_elements: Any, *, invert: bool = False) -> Any:
    vector = _along(tracer, "isin", test_elements, None)
    if not isinstance(elements, Symbol):
        raise tracer.refuse("calls isin() of what has a dimension; look for one scalar")
    pair = arithmetic.common(elements.node, vector.node)
    found = Vector(tracer, arithmetic.order("!=" if invert else "==", *pair), vector.length)
    return _joined(found, "all_of" if invert else "any_of", torch.bool, False)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum, "mean": _mean, "any": _truth("any"), "all": _truth("all"), "dot": _dot,
    "vdot": _dot, "inner": _dot, "matmul": _dot, "amax": _extreme("amax", "max_of"),
    "amin": _extreme("amin", "min_of"), "max": _extreme("max", "max_of"),
    "min": _extreme("min", "min_of"), "isin": _isin,
}  # fmt: skip


def reduces(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this is a call of a reduction: max(x, y) of two tensors is none."""
    other = args[1] if len(args) > 1 else kwargs.get("other")
    return name not in ("max", "min") or not isinstance(other, (Stub, torch.Tensor))


def unsqueeze(tracer: Tracer, input: Any, dim: int) -> Any:
    """A vector of the scalar alone."""
    if not isinstance(input, Symbol) or dim not in (0, -1):
        raise tracer.refuse("calls unsqueeze() of what has a dimension; tensors may have one here")
    return Vector(tracer, input.node, 1)


def squeeze(tracer: Tracer, input: Any, dim: int = -1) -> Any:
    """The scalar that a vector of one element has."""
    vector = vector_of(tracer, input)
    return input if vector is None or vector.length > 1 else Symbol(tracer, vector.node)


SHAPES: dict[str, Callable[..., Any]] = {"unsqueeze": unsqueeze, "squeeze": squeeze}


def _along(tracer: Tracer, name: str, value: Any, dim: Any) -> Vector:
    vector = Vector(tracer, value.node, 1) if isinstance(value, Symbol) else None
    vector = vector or vector_of(tracer, value)
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if vector is None or not all(
        one is None or (is_number(one) and one in (0, -1)) for one in dims
    ):
        shape = list(getattr(value, "shape", ()))
        raise tracer.refuse(
            f"calls {name}() of a tensor of shape {shape}, dim {dim}; index all dimensions but the "
            "last, and reduce that"
        )
    return vector


def _joined(vector: Vector, function: str, dtype: torch.dtype, keeps: bool) -> Any:
    node = convert(vector.node, dtype)
    if vector.length > 1:
        form = f"kiln::{function}({{0}}, [&](int i) {{{{ return {{body}}; }}}})"
        low = 0 if node.is_never_negative else None
        count = vector.tracer.count(vector.length)
        node = Node(form, dtype, (count,), low=low, body=node)
    return Vector(vector.tracer, node, 1) if keeps else Symbol(vector.tracer, node)
