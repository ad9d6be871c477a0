"""Vectors: rows of tensors, of which a callable computes element by element and then reduces what
it has to a scalar, by a loop in the kernel."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from . import arithmetic
from .nodes import INDEX, Node, constant, convert, promoted
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


class Stack(Vector):
    """A tensor of one dimension of which each element is an expression of its own. No loop is
    needed to reduce it, and masks that it decides are known over intervals as `|` and `&` are."""

    def __init__(self, tracer: Tracer, nodes: list[Node]) -> None:
        super().__init__(tracer, nodes[0], len(nodes))
        self.nodes = nodes

    def __iter__(self) -> Any:
        return (Symbol(self.tracer, node) for node in self.nodes)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and -self.length <= index < self.length:
            return Symbol(self.tracer, self.nodes[index])
        return super().__getitem__(index)


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
    values: dict[int | str, Vector | None] = {
        place: vector_of(tracer, value) for place, value in enumerate(args)
    }
    values |= {name: vector_of(tracer, value) for name, value in kwargs.items()}
    vectors = [vector for vector in values.values() if vector is not None]
    if not vectors:
        return operation(tracer, *args, **kwargs)
    lengths = sorted({vector.length for vector in vectors} - {1})
    if len(lengths) > 1:
        raise _lengths_differ(tracer, *lengths)

    def with_scalars(node_of: Callable[[Vector], Node]) -> Node:
        def scalar(place: int | str, value: Any) -> Any:
            vector = values[place]
            return value if vector is None else Symbol(tracer, node_of(vector))

        own = {name: scalar(name, value) for name, value in kwargs.items()}
        return operation(tracer, *itertools.starmap(scalar, enumerate(args)), **own)

    if not any(isinstance(vector, Stack) for vector in vectors):
        return Vector(tracer, with_scalars(lambda vector: vector.node), max(lengths, default=1))
    parts = [functools.partial(node_at, place=place) for place in range(lengths[0])]
    return Stack(tracer, [with_scalars(part) for part in parts])


def _pairwise(
    tracer: Tracer, operation: Callable[[Node, Node], Node], first: Stub, second: Stub
) -> Vector:
    made = each(tracer, lambda _, x, y: operation(x.node, y.node), (first, second), {})
    assert isinstance(made, Vector)  # as one of both is
    return made


def node_at(vector: Vector, place: int) -> Node:
    """One element of a vector."""
    if isinstance(vector, Stack):
        return vector.nodes[place]
    done = {id(INDEX): constant(place, torch.int32)}

    def at(node: Node) -> Node:
        if id(node) not in done and node.args:
            done[id(node)] = replace(node, args=tuple(map(at, node.args)))
        return done.get(id(node), node)

    return at(vector.node)


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
    products = _pairwise(tracer, arithmetic.multiply, first, second)
    return _joined(products, "sum_of", products.dtype, False)


def _isin(tracer: Tracer, elements: Any, test_elements: Any, *, invert: bool = False) -> Any:
    vector = _along(tracer, "isin", test_elements, None)
    if not isinstance(elements, Symbol):
        raise tracer.refuse("calls isin() of what has a dimension; look for one scalar")

    def compare(first: Node, second: Node) -> Node:
        return arithmetic.order("!=" if invert else "==", *arithmetic.common(first, second))

    found = _pairwise(tracer, compare, elements, vector)
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


def stack(tracer: Tracer, tensors: Any, dim: int = 0) -> Any:
    """A vector of these scalars, of the dtype that they have in common."""
    from .functions import node_of

    # PyTorch itself refuses what is no tensor.
    if dim not in (0, -1) or any(tensor.dim() != 0 for tensor in tensors):
        raise tracer.refuse("calls stack() of what has a dimension; join scalar tensors alone")
    nodes = [node_of(tracer, tensor) for tensor in tensors]
    dtype = functools.reduce(promoted, (node.dtype for node in nodes))
    nodes = [convert(node, dtype) for node in nodes]
    return Stack(tracer, nodes) if len(nodes) > 1 else Vector(tracer, nodes[0], 1)


SHAPES: dict[str, Callable[..., Any]] = {
    "unsqueeze": unsqueeze, "squeeze": squeeze, "stack": stack,
}  # fmt: skip
# How two elements of a stack are joined, by the function that reduces others in a loop.
JOINS: dict[str, Callable[[Node, Node], Node]] = {
    "sum_of": arithmetic.add, "max_of": arithmetic.maximum, "min_of": arithmetic.minimum,
    "any_of": functools.partial(arithmetic.bits, "|"),
    "all_of": functools.partial(arithmetic.bits, "&"),
}  # fmt: skip


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
    if isinstance(vector, Stack):
        node = functools.reduce(JOINS[function], (convert(x, dtype) for x in vector.nodes))
    elif vector.length > 1:
        form = f"kiln::{function}({{0}}, [&](int i) {{{{ return {{body}}; }}}})"
        low = 0 if node.is_never_negative else None
        count = vector.tracer.count(vector.length)
        node = Node(form, dtype, (count,), low=low, body=node)
    return Vector(vector.tracer, node, 1) if keeps else Symbol(vector.tracer, node)
