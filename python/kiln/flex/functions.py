"""The functions and methods of PyTorch that a traced callable may use, by their names."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from . import arithmetic as a
from .nodes import FLOATS, WHOLES, Node, choose, compare, constant, convert, negation, promoted
from .symbols import Rows, Symbol, is_number
from .tracer import Tracer
from .vectors import REDUCTIONS, SHAPES, Vector, each, reduces

# C++'s functions of one floating-point number.
UNARY = {
    "exp": "expf({0})", "exp2": "exp2f({0})", "expm1": "expm1f({0})", "log": "logf({0})",
    "log2": "log2f({0})", "log10": "log10f({0})", "log1p": "log1pf({0})", "sqrt": "sqrtf({0})",
    "rsqrt": "(1.0f / sqrtf({0}))", "reciprocal": "(1.0f / {0})", "tanh": "tanh({0})",
    "asin": "asinf({0})", "acos": "acosf({0})", "atanh": "atanhf({0})", "acosh": "acoshf({0})",
    "erfinv": "erfinvf({0})", "sin": "sinf({0})", "cos": "cosf({0})", "tan": "tanf({0})",
    "atan": "atanf({0})", "sinh": "sinhf({0})", "cosh": "coshf({0})", "asinh": "asinhf({0})",
    "erf": "erff({0})", "erfc": "erfcf({0})", "sigmoid": "(1.0f / (1.0f + expf(-{0})))",
}  # fmt: skip
ROUNDING = {"floor": "floorf", "ceil": "ceilf", "trunc": "truncf", "round": "rintf"}
ORDER = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
DTYPES = {
    "float": torch.float32, "int": torch.int32, "long": torch.int64, "bool": torch.bool,
    "half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64,
    "byte": torch.uint8, "short": torch.int16, "char": torch.int8,
}  # fmt: skip
ALIASES = {
    "subtract": "sub", "multiply": "mul", "div": "true_divide", "divide": "true_divide",
    "arctan": "atan", "arcsin": "asin", "arccos": "acos", "arctan2": "atan2", "arcsinh": "asinh",
    "arccosh": "acosh", "arctanh": "atanh", "special_erfinv": "erfinv", "absolute": "abs",
    "negative": "neg", "fix": "trunc", "square_": "square", "special_expit": "sigmoid",
    "expit": "sigmoid", "special_erf": "erf", "special_exp2": "exp2", "special_log1p": "log1p",
    "special_expm1": "expm1", "clip": "clamp", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "not_equal": "ne", "min": "minimum", "max": "maximum",
    "bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift", "truediv": "true_divide",
    "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "invert": "bitwise_not", "rtruediv": "rdiv", "radd": "add",
    "rmod": "rremainder", "rfloordiv": "rfloor_divide",
}  # fmt: skip

Operation = Callable[..., Node]
TABLE: dict[str, Operation] = {}


def apply(tracer: Tracer, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Notes that the callable has called this function."""
    given, name = name.strip("_"), _plain(name)
    kwargs.pop("out", None)
    try:
        if given in SHAPES:
            return SHAPES[given](tracer, *args, **kwargs)
        if given in REDUCTIONS and reduces(given, args, kwargs):
            return REDUCTIONS[given](tracer, *args, **kwargs)
        if name == "getitem":
            raise tracer.refuse("indexes something other than a tensor by a scalar of the kernel")
        if name not in TABLE:
            raise tracer.refuse(f"calls {name}(), which is not supported")
        made = each(tracer, TABLE[name], args, kwargs)
    except TypeError as error:
        if str(error).startswith("flex_attention: "):
            raise
        raise tracer.refuse(f"calls {name}() with what is not supported: {error}") from None
    return made if isinstance(made, Vector) else Symbol(tracer, made, f"what {name}() returns")


def knows(name: str) -> bool:
    """Whether there is such a method."""
    return _plain(name) in TABLE or name in REDUCTIONS or name in SHAPES


def _plain(name: str) -> str:
    name = name.strip("_")
    return ALIASES.get(name, name)


def node_of(tracer: Tracer, value: Any, like: torch.dtype | None = None) -> Node:
    """The argument as a node. A number takes the dtype that it has beside one of `like`."""
    if isinstance(value, Symbol):
        return value.node
    if isinstance(value, Rows) or (isinstance(value, torch.Tensor) and value.dim() != 0):
        raise tracer.refuse(
            f"computes with a tensor of shape {list(value.shape)}; index every dimension, or all "
            "but one and reduce that"
        )
    if isinstance(value, torch.Tensor):
        return tracer.element(value, ())
    if hasattr(value, "__index__") and not is_number(value):
        value = int(value)
    elif hasattr(value, "__float__") and not is_number(value):
        value = float(value)
    if not is_number(value):
        raise tracer.refuse(f"computes with {value!r}; a number or a tensor was expected")
    return tracer.number(value, _dtype_beside(value, like))


def _dtype_beside(value: Any, like: torch.dtype | None) -> torch.dtype:
    if isinstance(value, bool):
        return like or torch.bool
    if isinstance(value, int):
        return torch.int64 if like in (None, torch.bool) else like
    return like if like is not None and like.is_floating_point else torch.float32


def nodes_of(tracer: Tracer, *values: Any) -> list[Node]:
    """Arguments that are computed with each other."""
    tensors = [value for value in values if isinstance(value, (Symbol, torch.Tensor))]
    dtypes = [node_of(tracer, value).dtype for value in tensors]
    like = None
    for dtype in dtypes:
        like = dtype if like is None else promoted(like, dtype)
    return [node_of(tracer, value, like) for value in values]


def define(name: str) -> Callable[[Operation], Operation]:
    """Enters a function into the table."""

    def enter(operation: Operation) -> Operation:
        TABLE[name] = operation
        return operation

    return enter


def _binary(name: str, operation: Callable[[Node, Node], Node]) -> None:
    TABLE[name] = lambda t, input, other: operation(*nodes_of(t, input, other))


def _logical(sign: str, first: Node, second: Node) -> Node:
    return a.bits(sign, convert(first, torch.bool), convert(second, torch.bool))


for _name, _operation in {
    "mul": a.multiply, "floor_divide": a.floor_divide, "remainder": a.remainder, "pow": a.power,
    "fmod": a.fmod, "minimum": a.minimum, "maximum": a.maximum,
}.items():  # fmt: skip
    _binary(_name, _operation)
    TABLE["r" + _name] = lambda t, input, other, made=_operation: made(*nodes_of(t, other, input))
for _name, _sign in ORDER.items():
    _binary(_name, functools.partial(a.order, _sign))
for _name, _sign in {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}.items():
    _binary(_name, functools.partial(a.bits, _sign))
for _name, _sign in {"lshift": "<<", "rshift": ">>"}.items():
    _binary(_name, functools.partial(a.shift, _sign))
for _name, _sign in {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}.items():
    _binary(_name, functools.partial(_logical, _sign))
TABLE["rtrue_divide"] = TABLE["rdiv"] = lambda t, x, y: a.divide(*nodes_of(t, y, x))
for _name, _form in UNARY.items():
    TABLE[_name] = lambda t, input, form=_form: _unary(t, input, form)
for _name, _form in ROUNDING.items():
    TABLE[_name] = lambda t, input, form=_form: _rounded(t, input, form)
for _name, _dtype in DTYPES.items():
    TABLE[_name] = lambda t, input, dtype=_dtype: _to(t, input, dtype)
TABLE["neg"] = lambda t, input: a.negate(node_of(t, input))
TABLE["abs"] = lambda t, input: a.absolute(node_of(t, input))
TABLE["bitwise_not"] = lambda t, input: a.invert(node_of(t, input))
TABLE["logical_not"] = lambda t, input: negation(convert(node_of(t, input), torch.bool))
TABLE["sign"] = TABLE["sgn"] = lambda t, input: a.sign(node_of(t, input))
TABLE["positive"] = TABLE["clone"] = TABLE["detach"] = TABLE["contiguous"] = node_of
TABLE["isnan"] = lambda t, input: _is(t, input, lambda x: compare("!=", x, x))


def _unary(tracer: Tracer, value: Any, form: str) -> Node:
    node = node_of(tracer, value)
    node = node if node.is_float else convert(node, torch.float32)
    return Node(form, node.dtype, (node,))


def _rounded(tracer: Tracer, value: Any, function: str) -> Node:
    node = node_of(tracer, value)
    return Node(f"{function}({{0}})", node.dtype, (node,)) if node.is_float else node


def _is(tracer: Tracer, value: Any, test: Callable[[Node], Node]) -> Node:
    node = node_of(tracer, value)
    return test(node) if node.is_float else constant(False, torch.bool)


@define("isinf")
def _isinf(tracer: Tracer, input: Any) -> Node:
    infinite = constant(math.inf, torch.float32)
    return _is(tracer, input, lambda x: compare("==", a.absolute(x), infinite))


@define("isfinite")
def _isfinite(tracer: Tracer, input: Any) -> Node:
    node = node_of(tracer, input)
    if not node.is_float:
        return constant(True, torch.bool)
    return compare("<", a.absolute(node), constant(math.inf, torch.float32))


@define("add")
def _add(tracer: Tracer, input: Any, other: Any, alpha: Any = 1) -> Node:
    if not is_number(alpha) or alpha != 1:
        other = Symbol(tracer, a.multiply(*nodes_of(tracer, other, alpha)))
    return a.add(*nodes_of(tracer, input, other))


@define("sub")
def _sub(tracer: Tracer, input: Any, other: Any, alpha: Any = 1) -> Node:
    if not is_number(alpha) or alpha != 1:
        other = Symbol(tracer, a.multiply(*nodes_of(tracer, other, alpha)))
    return a.subtract(*nodes_of(tracer, input, other))


@define("rsub")
def _rsub(tracer: Tracer, input: Any, other: Any) -> Node:
    return a.subtract(*nodes_of(tracer, other, input))


@define("true_divide")
def _divide(tracer: Tracer, input: Any, other: Any, rounding_mode: str | None = None) -> Node:
    kinds = {None: a.divide, "floor": a.floor_divide, "trunc": a.truncated_divide}
    return kinds[rounding_mode](*nodes_of(tracer, input, other))


@define("where")
def _where(tracer: Tracer, condition: Any, input: Any, other: Any) -> Node:
    shown = node_of(tracer, condition)
    if is_number(input) and is_number(other):
        dtype = promoted(_dtype_beside(input, None), _dtype_beside(other, None))
        return a.where(shown, tracer.number(input, dtype), tracer.number(other, dtype))
    return a.where(shown, *nodes_of(tracer, input, other))


@define("masked_fill")
def _masked_fill(tracer: Tracer, input: Any, mask: Any, value: Any) -> Node:
    node, filling = nodes_of(tracer, input, value)
    return a.where(node_of(tracer, mask), convert(filling, node.dtype), node)


@define("clamp")
def _clamp(tracer: Tracer, input: Any, min: Any = None, max: Any = None) -> Node:
    node = node_of(tracer, input)
    if min is not None:
        node = _bounded(tracer, node, min, "<", a.maximum)
    return node if max is None else _bounded(tracer, node, max, ">", a.minimum)


def _bounded(
    tracer: Tracer, node: Node, bound: Any, sign: str, of_wholes: Callable[[Node, Node], Node]
) -> Node:
    x, y = nodes_of(tracer, Symbol(tracer, node), bound)
    x, y = a.common(x, y)
    return choose(compare(sign, x, y), y, x) if x.is_float else of_wholes(x, y)


@define("clamp_min")
def _clamp_min(tracer: Tracer, input: Any, min: Any) -> Node:
    return _clamp(tracer, input, min=min)


@define("clamp_max")
def _clamp_max(tracer: Tracer, input: Any, max: Any) -> Node:
    return _clamp(tracer, input, max=max)


@define("relu")
def _relu(tracer: Tracer, input: Any, inplace: bool = False) -> Node:
    return _clamp(tracer, input, min=0)


@define("square")
def _square(tracer: Tracer, input: Any) -> Node:
    node = node_of(tracer, input)
    return a.multiply(node, node)


@define("silu")
def _silu(tracer: Tracer, input: Any, inplace: bool = False) -> Node:
    return a.multiply(node_of(tracer, input), _unary(tracer, input, UNARY["sigmoid"]))


@define("to")
def _to(tracer: Tracer, input: Any, *args: Any, **kwargs: Any) -> Node:
    node = node_of(tracer, input)
    kinds = [getattr(x, "dtype", x) for x in (*args, kwargs.get("dtype"))]
    dtype = next((kind for kind in kinds if isinstance(kind, torch.dtype)), node.dtype)
    if dtype in (torch.float16, torch.bfloat16) and node.dtype != dtype:
        kind = "kiln::f16" if dtype == torch.float16 else "kiln::bf16"
        rounded = convert(node, torch.float32)
        return Node(f"kiln::to_float(kiln::from_float<{kind}>({{0}}))", dtype, (rounded,))
    return convert(node, _known(tracer, dtype))


def _known(tracer: Tracer, dtype: torch.dtype) -> torch.dtype:
    """The dtype, or a refusal of one that no value has here."""
    if dtype != torch.bool and dtype not in FLOATS and dtype not in WHOLES:
        raise tracer.refuse(f"converts to {dtype}; use float32, int32, int64 or bool")
    return dtype


def _made(tracer: Tracer, dtype: torch.dtype) -> torch.dtype:
    """The dtype of a scalar that the callable makes. PyTorch makes float64 of Python's numbers, so
    that is float32 here."""
    return torch.float32 if dtype == torch.float64 else _known(tracer, dtype)


TABLE["type"] = TABLE["type_as"] = TABLE["to"]


@define("new_full")
def _new_full(tracer: Tracer, input: Any, size: Any, fill_value: Any, **kwargs: Any) -> Node:
    if tuple(size) != ():
        raise tracer.refuse(f"makes a tensor of shape {list(size)}; only scalars can be made")
    dtype = _made(tracer, kwargs.get("dtype") or node_of(tracer, input).dtype)
    if is_number(fill_value):
        return tracer.number(fill_value, dtype)
    return convert(node_of(tracer, fill_value), dtype)


TABLE["new_zeros"] = lambda t, x, size=(), **kw: _new_full(t, x, size, 0, **kw)
TABLE["new_ones"] = lambda t, x, size=(), **kw: _new_full(t, x, size, 1, **kw)
TABLE["new_tensor"] = lambda t, x, data, **kw: _new_full(t, x, (), data, **kw)
TABLE["full_like"] = lambda t, x, fill_value, **kw: _new_full(t, x, (), fill_value, **kw)
TABLE["zeros_like"] = lambda t, x, **kw: _new_full(t, x, (), 0, **kw)
TABLE["ones_like"] = lambda t, x, **kw: _new_full(t, x, (), 1, **kw)


def new_scalar(tracer: Tracer, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A scalar tensor that the callable makes of a number, such as torch.tensor(0.5), or None."""
    value: Any = None
    if name in ("tensor", "as_tensor", "scalar_tensor") and args and is_number(args[0]):
        value = args[0]
    elif name == "full" and len(args) == 2 and tuple(args[0]) == () and is_number(args[1]):
        value = args[1]
    elif name in ("zeros", "ones") and args == ((),):
        value = float(name == "ones")
    if value is None:
        return None
    node = node_of(tracer, value)
    return Symbol(tracer, convert(node, _made(tracer, kwargs.get("dtype") or node.dtype)))
