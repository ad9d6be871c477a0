"""The stand-ins for scalars that a traced callable is called with: objects with the operators,
methods and properties of a tensor without dimensions, which note what is done with them."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.overrides import TorchFunctionMode

from .nodes import Node
from .tracer import Tracer

# These ask a tensor for facts that its dtype and shape decide. (Its properties are "__get__".)
FACTS = {
    "__get__", "dim", "ndimension", "size", "numel", "nelement", "__len__", "is_floating_point",
    "is_complex", "element_size", "is_tensor", "__hash__",
}  # fmt: skip
IN_PYTHON = (
    "needs the value of {} in Python, which exists only inside the kernel; use torch.where() "
    "instead of if, torch.minimum() and torch.maximum() instead of min() and max(), and &, |, ~ "
    "instead of and, or, not"
)


def is_number(value: Any) -> bool:
    """Whether this is a number of Python's."""
    return isinstance(value, (bool, int, float))


def _operator(name: str) -> Any:
    return lambda self, other: self._call(name, self, other)


def _reflected(name: str) -> Any:
    return lambda self, other: self._call(name, other, self)


class Stub:
    """An object that stands for a tensor of which a part is known only in the kernel."""

    __array_ufunc__ = None  # NumPy's scalars leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    tracer: Tracer

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        from .functions import apply

        stub = next(stub for stub in _stubs((args, kwargs or {})))
        return apply(stub.tracer, _name(func), args, kwargs or {})

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        from .functions import apply

        return apply(self.tracer, name, args, kwargs)

    def _said(self) -> str:
        raise NotImplementedError

    def _in_python(self, *_: Any) -> NoReturn:
        raise self.tracer.refuse(IN_PYTHON.format(self._said()))

    __bool__ = __int__ = __float__ = __index__ = __complex__ = _in_python
    __iter__ = __contains__ = __round__ = __trunc__ = _in_python
    item = tolist = numpy = _in_python

    def __len__(self) -> int:
        return self._in_python()

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("true_divide"), _reflected("true_divide")
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _operator("remainder"), _reflected("remainder")
    __pow__, __rpow__ = _operator("pow"), _reflected("pow")
    __and__, __rand__ = _operator("bitwise_and"), _reflected("bitwise_and")
    __or__, __ror__ = _operator("bitwise_or"), _reflected("bitwise_or")
    __xor__, __rxor__ = _operator("bitwise_xor"), _reflected("bitwise_xor")
    __lshift__, __rlshift__ = _operator("lshift"), _reflected("lshift")
    __rshift__, __rrshift__ = _operator("rshift"), _reflected("rshift")
    __matmul__, __rmatmul__ = _operator("matmul"), _reflected("matmul")
    __eq__, __ne__ = _operator("eq"), _operator("ne")
    __lt__, __le__, __gt__, __ge__ = (_operator(name) for name in ("lt", "le", "gt", "ge"))

    def __neg__(self) -> Any:
        return self._call("neg", self)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return self._call("bitwise_not", self)

    def __abs__(self) -> Any:
        return self._call("abs", self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("tracer", "node"):
            raise AttributeError(name)
        from .functions import knows

        if not knows(name):
            raise self.tracer.refuse(f"uses .{name} of {self._said()}, which is not supported")
        return lambda *args, **kwargs: self._call(name, self, *args, **kwargs)


class Symbol(Stub):
    """A scalar."""

    shape = torch.Size([])
    ndim = 0
    requires_grad = False

    def __init__(self, tracer: Tracer, node: Node, said: str = "") -> None:
        self.tracer = tracer
        self.node = node
        self.said = said

    def _said(self) -> str:
        return self.said or "a computed scalar"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that PyTorch would give this scalar."""
        return self.node.dtype

    @property
    def device(self) -> torch.device:
        """Where the scalar lives: everywhere, so anything may be made beside it."""
        return torch.device("cpu")

    def dim(self) -> int:
        """No dimensions."""
        return 0

    def size(self) -> torch.Size:
        """No dimensions."""
        return self.shape

    def __getitem__(self, index: Any) -> Any:
        if index == () or index is Ellipsis:
            return self
        raise self.tracer.refuse(f"indexes {self._said()}, which is a scalar")


class Rows(Stub):
    """A tensor whose first dimensions have been indexed."""

    def __init__(self, tracer: Tracer, tensor: torch.Tensor, indices: tuple[Node, ...]) -> None:
        self.tracer, self.tensor, self.indices = tracer, tensor, indices

    def _said(self) -> str:
        return f"a tensor of shape {list(self.shape)}"

    @property
    def shape(self) -> torch.Size:
        """The shape of the dimensions that are left."""
        return self.tensor.shape[len(self.indices) :]

    @property
    def ndim(self) -> int:
        """The number of dimensions that are left."""
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The tensor's."""
        return self.tensor.dtype

    @property
    def device(self) -> torch.device:
        """The tensor's."""
        return self.tensor.device

    def dim(self) -> int:
        """The number of dimensions that are left."""
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        """The shape of the dimensions that are left, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        return read(self.tracer, self.tensor, self.indices, index)


def read(tracer: Tracer, tensor: torch.Tensor, known: tuple[Node, ...], index: Any) -> Any:
    """The value of tensor[*known][index], for an index of integers, stubs and tensors of one
    dimension."""
    from .vectors import Stack, Vector, stack, vector_of

    items = index if isinstance(index, tuple) else (index,)
    stacks = [item for item in items if isinstance(item, Stack)]
    if stacks and len({len(item) for item in stacks}) == 1:
        chosen = [
            tuple(item[place] if isinstance(item, Stack) else item for item in items)
            for place in range(len(stacks[0]))
        ]
        return stack(tracer, [read(tracer, tensor, known, each) for each in chosen])
    if len(known) + len(items) > tensor.dim():
        raise IndexError(
            f"flex_attention: {tracer.what} gives {len(known) + len(items)} indices to a tensor of "
            f"shape {list(tensor.shape)}"
        )
    nodes, lengths = list(known), set()
    for item in items:
        vector = vector_of(tracer, item)
        node = _index(tracer, item) if vector is None else vector.node
        if node is None or not node.is_whole:
            raise tracer.refuse(
                f"indexes a tensor of shape {list(tensor.shape)} by {_index_text(item)}; every "
                "index must be a whole number"
            )
        nodes.append(node)
        lengths |= set() if vector is None else {vector.length}
    if not lengths and len(nodes) < tensor.dim():
        return Rows(tracer, tensor, tuple(nodes))
    if lengths and (len(nodes) < tensor.dim() or len(lengths - {1}) > 1):
        raise tracer.refuse(
            f"indexes a tensor of shape {list(tensor.shape)} by one of {max(lengths)} elements; "
            "then every dimension must have an index, of one length"
        )
    element = tracer.element(tensor, tuple(nodes))
    if lengths:
        return Vector(tracer, element, max(lengths))
    return Symbol(tracer, element, "an element of a tensor")


def _index(tracer: Tracer, item: Any) -> Node | None:
    if isinstance(item, Symbol):
        return item.node
    if isinstance(item, int) and not isinstance(item, bool):
        return tracer.number(item, torch.int32)
    if isinstance(item, torch.Tensor) and item.dim() == 0:
        return tracer.element(item, ())
    return None


def _index_text(item: Any) -> str:
    return str(item.dtype) if isinstance(item, (Stub, torch.Tensor)) else repr(item)


def _stubs(value: Any) -> Any:
    if isinstance(value, Stub):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _stubs(item)
    elif isinstance(value, dict):
        yield from _stubs(tuple(value.values()))


def _has_stub(value: Any) -> bool:
    return any(True for _ in _stubs(value))


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func))


class Watch(TorchFunctionMode):
    """While a callable is traced: indexing a tensor by symbols reads an element of it, and what is
    computed of real tensors alone is noticed."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        from .functions import apply, new_scalar

        kwargs = kwargs or {}
        name = _name(func)
        if name == "__getitem__" and isinstance(args[0], torch.Tensor):
            items = args[1] if isinstance(args[1], tuple) else (args[1],)
            if all(isinstance(item, (int, Stub)) for item in items) or _has_stub(items):
                return read(self.tracer, args[0], (), args[1])
        if _has_stub((args, kwargs)):
            return apply(self.tracer, name, args, kwargs)
        scalar = new_scalar(self.tracer, name, args, kwargs)
        if scalar is not None:
            return scalar
        if name not in FACTS:
            self.tracer.computes = True
        return func(*args, **kwargs)
