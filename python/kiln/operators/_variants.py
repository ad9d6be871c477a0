"""Attention with variants as PyTorch operators, such as torch.ops.kiln.flash_attention_variant.

They take a variant's definition as text, a spec's field `variant`, and its values and tensors as
arguments, so that a graph holds neither. Their kernels are in Python and bind the variant again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch

from .. import _core, jit, variants
from . import flash_attention, flash_attention_varlen, flash_attention_with_kvcache
from ._bound import Kinds, Traced, bound_values, by_name, kinds_of, traced_call
from ._schemas import SCHEMAS, Schema
from ._values import check, write_to

# The functions that tell the shapes of an operation's results.
_SHAPES = {
    "flash_attention": flash_attention,
    "flash_attention_varlen": flash_attention_varlen,
    "flash_attention_with_kvcache": flash_attention_with_kvcache,
}
_BIND = jit.Variant.__call__  # before trace_bindings() replaces it
# Scalars: numbers that are symbolic shapes stay symbols, which floats would fix.
_ARGUMENTS = "*, str variant, Scalar[] variant_values, Tensor[] variant_tensors, "


def _with_variant(schema: Schema) -> Schema:
    name = schema.name.replace(schema.operation, f"{schema.operation}_variant", 1)
    return schema._replace(name=name, text=schema.text.replace("*, ", _ARGUMENTS, 1))


VARIANT_SCHEMAS = tuple(_with_variant(s) for s in SCHEMAS if s.operation in _SHAPES)


class TracedVariant(Traced):
    """Stands for a BoundVariant."""


def bind_traced(variant: jit.Variant, given: dict[str, Any]) -> TracedVariant:
    """Binds values by name, as Variant.__call__ does."""
    values, tensors = bound_values("Variant", variant.name, variant._text, given)
    return TracedVariant(variant._text, values, tensors)


_BIND_BLOCKS = variants.bound_blocks  # likewise


def _block_text(size: int, kind: str, element: str) -> str:
    """The definition of block_sparse for blocks of a size: a constant, while the variant itself is
    an object of an extension, which PyTorch's compiler does not make."""
    return variants.blocks_of(size, kind, element)._text


@functools.wraps(_BIND_BLOCKS)
def _traced_blocks(blocks: Any, size: int, kind: str, element: str) -> Any:
    if torch.compiler.is_compiling():
        (size,) = range(size, size + 1)  # a number where it was a symbol: each size is a kernel
        return TracedVariant(_block_text(size, kind, element), (), (blocks,))
    return _BIND_BLOCKS(blocks, size, kind, element)


def trace_bindings() -> None:
    """Lets variants be bound in traced functions."""
    torch.compiler.assume_constant_result(_block_text)
    traced = traced_call("Variant", _BIND, bind_traced)
    jit.Variant.__call__ = traced  # type: ignore[method-assign]
    variants.bound_blocks = _traced_blocks


def _joined(*texts: str) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def parts(op: str, variant: Any) -> dict[str, Any]:
    """The operators' arguments for what `variant=` was given."""
    texts: list[str] = []
    values: list[Any] = []
    tensors: list[Any] = []
    for one in variant if isinstance(variant, (list, tuple)) else (variant,):
        if isinstance(one, jit.Variant):
            one = bind_traced(one, {})
        if not isinstance(one, (_core.BoundVariant, TracedVariant)):
            raise TypeError(
                f"{op}: variant must be a jit.Variant with its values bound, such as v(cap=30.0), "
                f"got {type(one).__name__}"
            )
        text, own_values, own_tensors = one._parts
        texts.append(text)
        values.extend(own_values)
        tensors.extend(own_tensors)
    check(op, {f"variant's tensor {i}": tensor for i, tensor in enumerate(tensors)})
    return {
        "variant": _joined(*texts),
        "variant_values": values,
        "variant_tensors": tensors,
    }


@functools.lru_cache(maxsize=256)
def _variants(text: str) -> tuple[tuple[jit.Variant, Kinds, tuple[str, ...]], ...]:
    """The variants of a definition, with the types of their parameters and the tensors' names."""
    definitions = json.loads(text)
    found = []
    for definition in definitions if isinstance(definitions, list) else [definitions]:
        variant = jit.Variant.__new__(jit.Variant)
        variant.__setstate__((json.dumps(definition), ""))  # type: ignore[attr-defined]
        found.append((variant, *kinds_of(definition)))
    return tuple(found)


def _bound(text: str, values: list[float], tensors: list[Any]) -> list[Any]:
    """The types that `variant=` takes."""
    variants = _variants(text)
    expected = sum(len(params) for _, params, _ in variants), sum(len(n) for _, _, n in variants)
    if (len(values), len(tensors)) != expected:
        raise ValueError(
            f"variant takes {expected[0]} values and {expected[1]} tensors, got {len(values)} and "
            f"{len(tensors)}"
        )
    left, rest, bound = iter(values), iter(tensors), []
    for variant, params, names in variants:
        given = by_name(params, left)
        bound.append(_BIND(variant, **given, **dict(zip(names, rest))))
    return bound


def kernel(schema: Schema) -> Callable[..., Any]:
    """The C entry as an operator's kernel."""
    entry = getattr(_core, schema.operation)
    asked = {f"return_{name}": True for name in schema.asked}

    def run(*args: Any, variant: str, variant_values: Any, variant_tensors: Any, **kw: Any) -> Any:
        bound = _bound(variant, variant_values, variant_tensors)
        result = entry(**dict(zip(schema.positional, args)), **kw, **asked, variant=bound)
        return result if schema.results else None

    return run


def call(
    op: str, inputs: tuple[Any, ...], variant: Any, options: dict[str, Any], out: Any, lse: Any,
    return_lse: Any,
) -> Any:  # fmt: skip
    """Calls the operator of an operation with a variant; the last three are the operation's."""
    options = {**options, **parts(op, variant)}
    return call_one_of(_operators(op), op, inputs, options, out, lse, return_lse)


def call_one_of(
    operators: tuple[Any, Any, Any], op: str, inputs: tuple[Any, ...], options: dict[str, Any],
    out: Any, lse: Any, return_lse: Any,
) -> Any:  # fmt: skip
    """Calls that of an operation's operators (its result; with the log-sum-exp; writing to both)
    which the last three arguments ask for."""
    with_out, with_lse, into = operators
    if out is None and lse is None:
        return with_lse(*inputs, **options) if return_lse else with_out(*inputs, **options)
    shapes = _SHAPES[op]
    if out is None:
        out = shapes.out(*inputs, **options)
    if lse is None and return_lse:
        lse = shapes.lse(*inputs, **options)
    write_to(into, *inputs, **options, out=out, lse=lse)
    return (out, lse) if return_lse else out


def _operators(op: str) -> tuple[Any, Any, Any]:
    ops = torch.ops.kiln
    if op == "flash_attention":
        return (
            ops.flash_attention_variant,
            ops.flash_attention_variant_lse,
            ops.flash_attention_variant_out,
        )
    if op == "flash_attention_varlen":
        return (
            ops.flash_attention_varlen_variant,
            ops.flash_attention_varlen_variant_lse,
            ops.flash_attention_varlen_variant_out,
        )
    return (
        ops.flash_attention_with_kvcache_variant,
        ops.flash_attention_with_kvcache_variant_lse,
        ops.flash_attention_with_kvcache_variant_out,
    )
