"""Python's and PyTorch's arithmetic as nodes: // rounds down, % has the sign of the divisor, and
minima and maxima pass NaN on, none of which is so in C++."""

from __future__ import annotations

import torch

from .nodes import (
    TO_INT64,
    Node,
    both,
    choose,
    compare,
    constant,
    convert,
    either,
    negation,
    promoted,
    whole,
)


def common_dtype(first: Node, second: Node) -> torch.dtype:
    """The dtype of what is computed of two values."""
    return promoted(first.dtype, second.dtype)


def common(first: Node, second: Node) -> tuple[Node, Node]:
    """Both with their common dtype."""
    dtype = common_dtype(first, second)
    return convert(first, dtype), convert(second, dtype)


def add(first: Node, second: Node) -> Node:
    """The sum."""
    a, b = common(first, second)
    if a.is_bool:
        return either(a, b)
    if a.is_float:
        return Node("({0} + {1})", a.dtype, (a, b))
    low = None if a.low is None or b.low is None else a.low + b.low
    return whole("({0} + {1})", (a, b), a.dtype, low)


def subtract(first: Node, second: Node) -> Node:
    """The difference."""
    a, b = common(first, second)
    if a.is_bool:
        raise TypeError("- of two bools; use ^ or logical_xor")
    if a.is_float:
        return Node("({0} - {1})", a.dtype, (a, b))
    low = a.low - b.value if a.low is not None and b.value is not None else None
    return whole("({0} - {1})", (a, b), a.dtype, low)


def multiply(first: Node, second: Node) -> Node:
    """The product."""
    a, b = common(first, second)
    if a.is_bool:
        return both(a, b)
    if a.is_float:
        return Node("({0} * {1})", a.dtype, (a, b))
    low = (a.low or 0) * (b.low or 0) if _of_naturals(a, b) else None
    return whole("({0} * {1})", (a, b), a.dtype, low)


def divide(first: Node, second: Node) -> Node:
    """The true quotient, a float32 of whole numbers too."""
    a, b = (_as_float(node) for node in (first, second))
    return Node("({0} / {1})", common_dtype(a, b), (a, b))


def floor_divide(first: Node, second: Node) -> Node:
    """The quotient, rounded down."""
    a, b = _numbers(first, second, "//")
    if a.is_float:
        return _floor_divide_floats(a, b)
    if a.is_never_negative and b.is_positive:
        return whole("({0} / {1})", (a, b), a.dtype, low=0)
    quotient = whole("({0} / {1})", (a, b), a.dtype)
    rest = _c_remainder(a, b)
    nought, one = constant(0, a.dtype), constant(1, a.dtype)
    if b.is_positive:
        inexact = compare("<", rest, nought)
    else:
        inexact = both(compare("!=", rest, nought), _differ(_is_negative(a), _is_negative(b)))
    return choose(inexact, whole("({0} - {1})", (quotient, one), a.dtype), quotient)


def remainder(first: Node, second: Node) -> Node:
    """The remainder of //, which has the divisor's sign."""
    a, b = _numbers(first, second, "%")
    if a.is_float:
        rest = Node("fmodf({0}, {1})", a.dtype, (a, b))
        nought = constant(0.0, a.dtype)
        wrong = both(compare("!=", rest, nought), _differ(_is_negative(b), _is_negative(rest)))
        return choose(wrong, Node("({0} + {1})", a.dtype, (rest, b)), rest)
    rest = _c_remainder(a, b)
    if a.is_never_negative and b.is_positive:
        return rest
    nought = constant(0, a.dtype)
    if b.is_positive:
        wrong = compare("<", rest, nought)
    else:
        wrong = both(compare("!=", rest, nought), _differ(_is_negative(b), _is_negative(rest)))
    low = 0 if b.is_positive else None
    result = choose(wrong, whole("({0} + {1})", (rest, b), a.dtype), rest)
    return Node("{0}", a.dtype, (result,), low=low, remainder=(a, b))


def truncated_divide(first: Node, second: Node) -> Node:
    """The quotient, rounded to zero."""
    a, b = _numbers(first, second, "div")
    if a.is_float:
        return Node("truncf({0})", a.dtype, (divide(a, b),))
    return whole("({0} / {1})", (a, b), a.dtype, 0 if _of_naturals(a, b) else None)


def fmod(first: Node, second: Node) -> Node:
    """The remainder of a quotient rounded to zero, which has the dividend's sign."""
    a, b = _numbers(first, second, "fmod")
    return Node("fmodf({0}, {1})", a.dtype, (a, b)) if a.is_float else _c_remainder(a, b)


def order(sign: str, first: Node, second: Node) -> Node:
    """A comparison."""
    a, b = common(first, second)
    if sign in ("==", "!=") and b.equals(0) and a.remainder is not None:
        # A remainder of either convention is 0 for the same numbers, and C++'s is cheaper.
        a = _c_remainder(*a.remainder)
    return compare(sign, a, b)


def power(first: Node, second: Node) -> Node:
    """The first to the power of the second."""
    if second.value is not None:
        exponent = second.value
        if exponent in (1, 2, 3, 4) and not first.is_bool:
            base = convert(first, common_dtype(first, second))
            square = multiply(base, base)
            return [base, square, multiply(square, base), multiply(square, square)][
                int(exponent) - 1
            ]
        if exponent == 0.5:
            return Node("sqrtf({0})", torch.float32, (_as_float(first),))
    if not first.is_float and not second.is_float:
        raise TypeError("** of two whole numbers, other than to 1, 2, 3 or 4; convert one to float")
    a, b = (_as_float(node) for node in common(first, second))
    return Node("powf({0}, {1})", a.dtype, (a, b))


def negate(node: Node) -> Node:
    """The number with the other sign."""
    if node.is_bool:
        raise TypeError("- of a bool; use ~ or logical_not")
    if node.is_float:
        return Node("(-{0})", node.dtype, (node,))
    return whole("(-{0})", (node,), node.dtype)


def absolute(node: Node) -> Node:
    """The number without its sign."""
    if node.is_float:
        return Node("fabsf({0})", node.dtype, (node,))
    return node if node.is_never_negative else Node("abs({0})", node.dtype, (node,), low=0)


def minimum(first: Node, second: Node) -> Node:
    """The smaller one, or NaN if one is."""
    a, b = common(first, second)
    if a.is_bool:
        return both(a, b)
    if a.is_float:
        return choose(either(compare("!=", a, a), compare("<", a, b)), a, b)
    low = None if a.low is None or b.low is None else min(a.low, b.low)
    return Node("min({0}, {1})", a.dtype, (_of_its_type(a), _of_its_type(b)), low=low)


def maximum(first: Node, second: Node) -> Node:
    """The larger one, or NaN if one is."""
    a, b = common(first, second)
    if a.is_bool:
        return either(a, b)
    if a.is_float:
        return choose(either(compare("!=", a, a), compare(">", a, b)), a, b)
    lows = [low for low in (a.low, b.low) if low is not None]
    low = max(lows, default=None)
    return Node("max({0}, {1})", a.dtype, (_of_its_type(a), _of_its_type(b)), low=low)


def bits(sign: str, first: Node, second: Node) -> Node:
    """And, or, exclusive or: of truth values, or of the bits of whole numbers."""
    a, b = common(first, second)
    if a.is_float:
        raise TypeError(f"{sign} of floating-point numbers")
    if a.is_bool:
        return {"&": both, "|": either, "^": _differ}[sign](a, b)
    low = 0 if a.is_never_negative and b.is_never_negative else None
    return Node(f"({{0}} {sign} {{1}})", a.dtype, (a, b), low=low)


def shift(sign: str, first: Node, second: Node) -> Node:
    """Bits moved to the left or right."""
    a, b = _numbers(first, second, sign)
    if a.is_float:
        raise TypeError(f"{sign} of floating-point numbers")
    return whole(f"({{0}} {sign} {{1}})", (a, b), a.dtype, 0 if a.is_never_negative else None)


def invert(node: Node) -> Node:
    """The other truth value, or the other bits."""
    if node.is_float:
        raise TypeError("~ of a floating-point number")
    return negation(node) if node.is_bool else whole("(~{0})", (node,), node.dtype)


def where(condition: Node, first: Node, second: Node) -> Node:
    """The first where the condition holds, else the second."""
    if not condition.is_bool:
        raise TypeError("torch.where() whose condition is not a bool; write a comparison")
    return choose(condition, *common(first, second))


def sign(node: Node) -> Node:
    """-1, 0 or 1; 0 of NaN, as PyTorch's."""
    nought = constant(0, node.dtype)
    one = constant(1, node.dtype)
    below = choose(compare("<", node, nought), negate(one), nought)
    return choose(compare(">", node, nought), one, below)


def _of_its_type(node: Node) -> Node:
    """For C++'s overloaded functions: what is computed of numbers without a suffix is an int."""
    if node.dtype != torch.int64 or node.form == TO_INT64:
        return node
    return Node(TO_INT64, node.dtype, (node,), low=node.low)


def _as_float(node: Node) -> Node:
    return node if node.is_float else convert(node, torch.float32)


def _numbers(first: Node, second: Node, what: str) -> tuple[Node, Node]:
    a, b = common(first, second)
    if a.is_bool:
        raise TypeError(f"{what} of two bools")
    return a, b


def _of_naturals(a: Node, b: Node) -> bool:
    return a.is_never_negative and b.is_never_negative


def _c_remainder(a: Node, b: Node) -> Node:
    return whole("({0} % {1})", (a, b), a.dtype, 0 if a.is_never_negative else None)


def _is_negative(node: Node) -> Node:
    return compare("<", node, constant(0, node.dtype))


def _differ(first: Node, second: Node) -> Node:
    return Node("({0} != {1})", torch.bool, (first, second), low=0)


def _floor_divide_floats(a: Node, b: Node) -> Node:
    """As PyTorch computes it: by way of the remainder, so that 1 // 0.1 is 9."""
    rest = Node("fmodf({0}, {1})", a.dtype, (a, b))
    nought, one = constant(0.0, a.dtype), constant(1.0, a.dtype)
    exact = divide(subtract(a, rest), b)
    low = both(compare("!=", rest, nought), _differ(_is_negative(b), _is_negative(rest)))
    quotient = choose(low, subtract(exact, one), exact)
    floor = Node("floorf({0})", a.dtype, (quotient,))
    half = constant(0.5, a.dtype)
    nearest = choose(compare(">", subtract(quotient, floor), half), add(floor, one), floor)
    result = choose(compare("!=", quotient, nought), nearest, nought)
    return choose(compare("==", b, nought), divide(a, b), result)
