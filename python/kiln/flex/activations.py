"""Functions of PyTorch that are formulas of others: activations, and some of two numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from . import arithmetic
from .functions import TABLE, node_of, nodes_of
from .nodes import Node, constant, convert
from .symbols import Symbol
from .tracer import Tracer

Formula = Callable[..., Symbol]


def _number(tracer: Tracer, value: float) -> Symbol:
    """A number of the formula itself, which is part of the kernel."""
    return Symbol(tracer, constant(value, torch.float32))


def _float(tracer: Tracer, value: Any) -> Symbol:
    node = node_of(tracer, value)
    return Symbol(tracer, node if node.is_float else convert(node, torch.float32))


def _option(number: Any, value: float, default: float) -> Any:
    """A default is part of the kernel, another value may be a parameter."""
    return number(default) if value == default else float(value)


def formula(*names: str) -> Callable[[Formula], Formula]:
    """Enters a function of `number`, which makes constants, of a scalar and of options."""

    def enter(made: Formula) -> Formula:
        def operation(tracer: Tracer, input: Any, *args: Any, **kwargs: Any) -> Node:
            kwargs.pop("inplace", None)
            number = lambda value: _number(tracer, value)  # noqa: E731
            return made(number, _float(tracer, input), *args, **kwargs).node

        TABLE.update(dict.fromkeys(names, operation))
        return made

    return enter


@formula("gelu")
def gelu(number: Any, x: Any, approximate: str = "none") -> Any:
    """Half of x, times 1 plus an error function or its approximation by tanh."""
    if approximate == "tanh":
        inner = number(math.sqrt(2 / math.pi)) * (x + number(0.044715) * x * x * x)
        return number(0.5) * x * (number(1) + inner.tanh())
    return number(0.5) * x * (number(1) + (number(math.sqrt(0.5)) * x).erf())


@formula("softplus")
def softplus(number: Any, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    """log(1 + e^(beta x)) / beta, which is x where that is large."""
    most = _option(number, threshold, 20)
    if beta == 1:
        return torch.where(x > most, x, torch.log1p(torch.exp(x)))
    scaled = x * float(beta)
    return torch.where(scaled > most, x, torch.log1p(torch.exp(scaled)) / float(beta))


@formula("logsigmoid", "log_sigmoid")
def log_sigmoid(number: Any, x: Any) -> Any:
    """The logarithm of the sigmoid."""
    return torch.minimum(x, number(0)) - torch.log1p(torch.exp(-x.abs()))


@formula("mish")
def mish(number: Any, x: Any) -> Any:
    """x tanh(softplus(x))."""
    return x * softplus(number, x).tanh()


@formula("elu")
def elu(number: Any, x: Any, alpha: float = 1) -> Any:
    """x, or alpha (e^x - 1) below 0."""
    below = torch.expm1(x)
    return torch.where(x > number(0), x, below if alpha == 1 else below * float(alpha))


@formula("celu")
def celu(number: Any, x: Any, alpha: float = 1) -> Any:
    """x, or alpha (e^(x / alpha) - 1) below 0."""
    below = torch.expm1(x) if alpha == 1 else torch.expm1(x / float(alpha)) * float(alpha)
    return torch.where(x > number(0), x, below)


@formula("selu")
def selu(number: Any, x: Any) -> Any:
    """ELU with the two constants of self-normalising networks."""
    below = number(1.6732632423543772) * torch.expm1(x)
    return number(1.0507009873554805) * torch.where(x > number(0), x, below)


@formula("leaky_relu")
def leaky_relu(number: Any, x: Any, negative_slope: float = 0.01) -> Any:
    """x, or a multiple of it below 0."""
    return torch.where(x > number(0), x, x * _option(number, negative_slope, 0.01))


@formula("hardtanh")
def hardtanh(number: Any, x: Any, min_val: float = -1, max_val: float = 1) -> Any:
    """x between two bounds."""
    return torch.clamp(x, _option(number, min_val, -1), _option(number, max_val, 1))


@formula("relu6")
def relu6(number: Any, x: Any) -> Any:
    """x between 0 and 6."""
    return torch.clamp(x, number(0), number(6))


@formula("hardsigmoid")
def hardsigmoid(number: Any, x: Any) -> Any:
    """A line from 0 at -3 to 1 at 3."""
    return relu6(number, x + number(3)) / number(6)


@formula("hardswish")
def hardswish(number: Any, x: Any) -> Any:
    """x times that line."""
    return x * relu6(number, x + number(3)) / number(6)


@formula("softsign")
def softsign(number: Any, x: Any) -> Any:
    """x / (1 + |x|)."""
    return x / (number(1) + x.abs())


@formula("tanhshrink")
def tanhshrink(number: Any, x: Any) -> Any:
    """Returns x less its tanh."""
    return x - x.tanh()


@formula("threshold")
def threshold(number: Any, x: Any, threshold: float, value: float) -> Any:
    """x above the threshold, else the value."""
    return torch.where(x > float(threshold), x, float(value))


@formula("lerp")
def lerp(number: Any, x: Any, end: Any, weight: Any) -> Any:
    """The point between two."""
    return x + weight * (end - x)


@formula("logaddexp")
def logaddexp(number: Any, x: Any, other: Any) -> Any:
    """log(e^x + e^y); of two equal infinities, that infinity."""
    larger, apart = torch.maximum(x, other), (x - other).abs()
    return torch.where(x == other, x + number(math.log(2)), larger + torch.log1p(torch.exp(-apart)))


@formula("nan_to_num")
def nan_to_num(
    number: Any, x: Any, nan: float = 0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Numbers in the place of NaN and the infinities."""
    most = torch.finfo(torch.float32).max
    above = number(most) if posinf is None else float(posinf)
    below = number(-most) if neginf is None else float(neginf)
    finite = torch.where(
        x == number(-math.inf), below, torch.where(x == number(math.inf), above, x)
    )
    return torch.where(x != x, number(0) if nan == 0 else float(nan), finite)


@formula("frac")
def frac(number: Any, x: Any) -> Any:
    """Returns the part behind the point."""
    return x - x.trunc()


@formula("deg2rad")
def deg2rad(number: Any, x: Any) -> Any:
    """Degrees as radians."""
    return x * number(math.pi / 180)


@formula("rad2deg")
def rad2deg(number: Any, x: Any) -> Any:
    """Radians as degrees."""
    return x * number(180 / math.pi)


def _of_two(form: str) -> Callable[..., Node]:
    def operation(tracer: Tracer, input: Any, other: Any) -> Node:
        first, second = arithmetic.common(*nodes_of(tracer, input, other))
        dtype = first.dtype if first.is_float else torch.float32
        return Node(form, dtype, (convert(first, dtype), convert(second, dtype)))

    return operation


for _name, _form in {
    "atan2": "atan2f({0}, {1})", "hypot": "hypotf({0}, {1})", "copysign": "copysignf({0}, {1})",
}.items():  # fmt: skip
    TABLE[_name] = _of_two(_form)
