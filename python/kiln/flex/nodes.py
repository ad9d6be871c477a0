"""The computation of a traced callable, as a graph of C++ operations on scalars.

A node knows PyTorch's dtype of its value, as that decides which operation a Python operator means,
and for whole numbers a lower bound, as division and remainder are cheaper of what is not negative.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any

import torch

# Dtypes that a value may have. float16 and bfloat16 are those of tensors: their elements are read
# as float32, and what is computed of them is not rounded to them.
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
WHOLES = (torch.int32, torch.int64, torch.uint8)

TO_INT32, TO_INT64 = "static_cast<int>({0})", "static_cast<long long>({0})"


def promoted(first: torch.dtype, second: torch.dtype) -> torch.dtype:
    """The dtype of what is computed of both. (PyTorch's own function of this would be taken for
    one that the traced callable calls.)"""
    if first == second:
        return first
    if first.is_floating_point and second.is_floating_point:
        return torch.float32
    order = (torch.bool, torch.uint8, torch.int32, torch.int64, *FLOATS)
    return max(first, second, key=order.index)


@dataclass(eq=False)
class Node:
    """One operation. `form` is C++ with {0}, {1} where the arguments stand, or a leaf's text."""

    form: str
    dtype: torch.dtype
    args: tuple[Node, ...] = ()
    low: int | None = None  # a lower bound, of whole numbers
    value: Any = None  # of a constant
    slot: int | None = None  # which parameter or tensor a leaf or an element reads
    remainder: tuple[Node, Node] | None = field(default=None, repr=False)  # the operands of %
    body: Node | None = None  # of a loop, computed of INDEX; {body} in the form

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point number."""
        return self.dtype.is_floating_point

    @property
    def is_bool(self) -> bool:
        """Whether this is a truth value."""
        return self.dtype == torch.bool

    @property
    def is_whole(self) -> bool:
        """Whether this is an integer, and no truth value."""
        return not self.is_float and not self.is_bool

    @property
    def is_never_negative(self) -> bool:
        """Whether this is known to be at least 0."""
        return self.low is not None and self.low >= 0

    @property
    def is_positive(self) -> bool:
        """Whether this is known to be at least 1."""
        return self.low is not None and self.low >= 1

    def equals(self, value: Any) -> bool:
        """Whether this is that constant."""
        return self.value is not None and self.value == value


INDEX = Node("i", torch.int32, low=0)  # of the element of a vector


def constant(value: Any, dtype: torch.dtype) -> Node:
    """A number that is part of the kernel."""
    if dtype == torch.bool:
        return Node("true" if value else "false", dtype, value=bool(value), low=int(value))
    if dtype.is_floating_point:
        return Node(_float_text(float(value)), dtype, value=float(value))
    text = str(value) if abs(value) < 2**31 else f"{value}ll"
    return Node(text if value >= 0 else f"({text})", dtype, value=value, low=value)


def _float_text(value: float) -> str:
    if value != value:
        return "__int_as_float(0x7fffffff)"
    if value in (float("inf"), float("-inf")):
        return f"__int_as_float({'0x7f800000' if value > 0 else '0xff800000'})"
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return _float_text(math.copysign(math.inf, value))
    return f"({rounded!r}f)" if math.copysign(1.0, rounded) < 0 else f"{rounded!r}f"


def convert(node: Node, dtype: torch.dtype) -> Node:
    """The same value with another dtype, as by Tensor.to()."""
    if node.dtype == dtype:
        return node
    if node.value is not None:
        return constant(dtype_value(node.value, dtype), dtype)
    if node.is_float and dtype.is_floating_point:
        return Node("{0}", dtype, (node,))
    if node.form == TO_INT64 and dtype == torch.int32:
        return node.args[0]
    if dtype == torch.bool:
        return Node("({0} != 0)", dtype, (node,), low=0)
    if dtype.is_floating_point:
        return Node("static_cast<float>({0})", dtype, (node,))
    if dtype == torch.uint8:
        whole = convert(node, torch.int32)
        return Node("({0} & 255)", dtype, (whole,), low=0)
    low = None if node.is_float else 0 if node.is_bool else node.low
    return Node(TO_INT64 if dtype == torch.int64 else TO_INT32, dtype, (node,), low=low)


def dtype_value(value: Any, dtype: torch.dtype) -> Any:
    """A Python number as a value of that dtype."""
    if dtype == torch.bool:
        return bool(value)
    return float(value) if dtype.is_floating_point else int(value)


def whole(form: str, args: tuple[Node, ...], dtype: torch.dtype, low: int | None = None) -> Node:
    """An operation on whole numbers of this dtype. A uint8 wraps around as PyTorch's does."""
    if dtype == torch.uint8:
        return Node("({0} & 255)", dtype, (Node(form, torch.int32, args),), low=0)
    return Node(form, dtype, args, low=low)


def choose(condition: Node, first: Node, second: Node) -> Node:
    """Returns condition ? first : second, of one dtype."""
    if condition.value is not None:
        return first if condition.value else second
    low = None if first.low is None or second.low is None else min(first.low, second.low)
    return Node("({0} ? {1} : {2})", first.dtype, (condition, first, second), low=low)


def compare(sign: str, first: Node, second: Node) -> Node:
    """A comparison of two nodes of one dtype."""
    return Node(f"({{0}} {sign} {{1}})", torch.bool, (first, second), low=0)


def both(first: Node, second: Node) -> Node:
    """The conjunction of two truth values."""
    for one, other in ((first, second), (second, first)):
        if one.equals(True):
            return other
        if one.equals(False):
            return one
    # Not &&, which would keep the loads of its right side from starting before the left is known.
    return Node("({0} & {1})", torch.bool, (first, second), low=0)


def either(first: Node, second: Node) -> Node:
    """The disjunction of two truth values."""
    for one, other in ((first, second), (second, first)):
        if one.equals(False):
            return other
        if one.equals(True):
            return one
    return Node("({0} | {1})", torch.bool, (first, second), low=0)


def negation(node: Node) -> Node:
    """The other truth value."""
    if node.value is not None:
        return constant(not node.value, torch.bool)
    return Node("(!{0})", torch.bool, (node,), low=0)
