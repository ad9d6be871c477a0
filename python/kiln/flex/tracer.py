"""The collection of one trace: the numbers that become parameters, the tensors that are read, and
whether the callable computed with real tensors on the way."""

from __future__ import annotations

from typing import Any

import torch

from .nodes import Node, constant, convert, dtype_value

PARAM, ELEMENT = "parameter", "element"  # the forms of the nodes that read a slot
MOST_PARAMS = 15  # that callables get of a variant's 16, as a BlockMask takes one
MOST_TENSORS = 8
TENSOR_TYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}


class Tracer:
    """One trace. `baked` are the numbers that stand in the code, by type and value, which become
    part of the kernel; every other one is a parameter, as it may be another one at a later call."""

    def __init__(self, baked: frozenset[tuple[type, Any]]) -> None:
        self.what = ""  # the callable that is traced, for messages
        self.baked = baked
        self.params: list[tuple[str, float | int]] = []  # their types and values
        self.tensors: list[torch.Tensor] = []
        self.computes = False  # with tensors, so that the trace holds for this call alone
        self._extents: dict[tuple[int, int], Node] = {}
        self._counts: dict[int, Node] = {}

    def refuse(self, text: str) -> TypeError:
        """The error that the traced callable cannot be compiled."""
        return TypeError(f"flex_attention: {self.what} {text}")

    def number(self, value: Any, dtype: torch.dtype) -> Node:
        """A number of Python's as a value of this dtype."""
        if dtype == torch.bool or isinstance(value, bool) or not self._varies(value):
            self._check(value, dtype)
            return constant(dtype_value(value, dtype), dtype)
        if len(self.params) == MOST_PARAMS:
            self._check(value, dtype)
            return constant(dtype_value(value, dtype), dtype)
        if dtype.is_floating_point:
            return self._param("f32", float(value), dtype)
        self._check(value, torch.int32)
        low = None if value < 0 else min(int(value), 1)  # the sign alone, so that digests agree
        return convert(self._param("i32", int(value), torch.int32, low), dtype)

    def _varies(self, value: Any) -> bool:
        if isinstance(value, float) and (value != value or abs(value) > 3.4e38):
            return False
        return (type(value), value) not in self.baked

    def _check(self, value: Any, dtype: torch.dtype) -> None:
        if not dtype.is_floating_point and not -(2**31) <= value < 2**31:
            raise self.refuse(f"uses the whole number {value}, which does not fit 32 bits")

    def _param(self, kind: str, value: float, dtype: torch.dtype, low: int | None = None) -> Node:
        self.params.append((kind, value))
        return Node(PARAM, dtype, low=low, slot=len(self.params) - 1)

    def slot_of(self, tensor: torch.Tensor) -> int:
        """The tensor's place among those that the trace reads."""
        for slot, known in enumerate(self.tensors):
            if known is tensor:
                return slot
        if tensor.dtype not in TENSOR_TYPES:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in TENSOR_TYPES)
            raise self.refuse(f"reads a tensor of {tensor.dtype}; convert it to one of {names}")
        if tensor.dim() > 5:
            raise self.refuse(f"reads a tensor of {tensor.dim()} dimensions; at most 5 are read")
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def count(self, length: int) -> Node:
        """The number of elements of a vector."""
        if length not in self._counts:
            self._counts[length] = self.number(length, torch.int32)
        return self._counts[length]

    def element(self, tensor: torch.Tensor, indices: tuple[Node, ...]) -> Node:
        """The tensor's element at one index for each dimension."""
        slot = self.slot_of(tensor)
        places = tuple(self._place(slot, i, index) for i, index in enumerate(indices))
        if tensor.dtype == torch.int64:
            return convert(Node(ELEMENT, torch.int32, places, slot=slot), torch.int64)
        low = 0 if tensor.dtype in (torch.bool, torch.uint8) else None
        return Node(ELEMENT, tensor.dtype, places, low=low, slot=slot)

    def _place(self, slot: int, dimension: int, index: Node) -> Node:
        extent = self.tensors[slot].size(dimension)
        if index.value is not None:
            if not -extent <= index.value < extent:
                raise IndexError(
                    f"flex_attention: {self.what} reads index {index.value} of dimension "
                    f"{dimension} of a tensor of shape {list(self.tensors[slot].shape)}"
                )
            return index if index.value >= 0 else self.number(index.value + extent, torch.int32)
        index = convert(index, torch.int32)
        if index.is_never_negative:
            return index
        if (slot, dimension) not in self._extents:
            self._extents[slot, dimension] = self.number(extent, torch.int32)
        wrapped = Node("({0} + {1})", torch.int32, (index, self._extents[slot, dimension]))
        below = Node("({0} < 0)", torch.bool, (index,))
        return Node("({0} ? {1} : {2})", torch.int32, (below, wrapped, index))
