"""A call of jit.flex_attention: its checks, its variant, its results."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from .. import _core
from .again import remember
from .blocks import block_size_of, tables_of
from .maxima import with_maxima
from .plan import bound_variant

_warned: set[str] = set()


def attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: Any,
    scale: Any,
    enable_gqa: bool,
    return_lse: bool,
    kernel_options: Any,
    return_aux: Any,
    mask_mod: Any,
) -> Any:
    """Computes a call of jit.flex_attention, and returns its result."""
    if torch.compiler.is_compiling():
        # Tracing what looks at callables would break the graph in many places.
        from .outside_of_graphs import outside_of_graphs

        return outside_of_graphs(
            query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options,
            return_aux, mask_mod,
        )  # fmt: skip
    callables, variant = (score_mod, mask_mod, block_mask), None
    if block_mask is None:
        if score_mod is not None or mask_mod is not None:
            variant = _core.known_variant(query, key, value, enable_gqa, *callables)
    elif mask_mod is None:
        callables = (score_mod, getattr(block_mask, "mask_mod", None), block_mask)
        variant = _core.known_variant(query, key, value, enable_gqa, *callables)
    if variant is None:
        shape, shape_kv = _checked_shapes(query, key, value, enable_gqa)
        _check_options(score_mod, block_mask, mask_mod)
        has_one_batch = shape[0] == shape_kv[0]
        if not has_one_batch:
            key, value = _with_batch(key, query, "key"), _with_batch(value, query, "value")
        tables = None if block_mask is None else tables_of(block_mask, query, key)
        variant = _bound_variant(callables, tables)
        if variant is not None and has_one_batch:
            remember(query, key, value, enable_gqa, callables, tables)
    wants_lse = wants_maxima = False
    if return_lse or return_aux is not None:
        wants_lse, wants_maxima = _wants_lse(return_lse, return_aux), _wants_maxima(return_aux)
    if kernel_options:
        _warn_once(
            "kernel_options are of PyTorch's kernels and have no effect here", UserWarning, 4
        )
    maxima = None
    if wants_maxima:
        variant, maxima = with_maxima(variant, query)
    result = _core.flash_attention(
        query, key, value, scale=scale, variant=variant, layout="bhsd", return_lse=wants_lse
    )
    if return_aux is None:
        return result
    from torch.nn.attention.flex_attention import AuxOutput

    out, lse = result if wants_lse else (result, None)
    return out, AuxOutput(lse=lse, max_scores=maxima)


def _bound_variant(callables: tuple[Any, Any, Any], tables: Any) -> Any:
    score_mod, mask_mod, block_mask = callables
    if block_mask is None:
        return bound_variant(score_mod, mask_mod)
    return bound_variant(score_mod, mask_mod, block_size_of(block_mask), tables)


def _checked_shapes(query: Any, key: Any, value: Any, enable_gqa: bool) -> tuple[Any, Any]:
    """Refuses what the tensors of a call may not be, and returns the shapes of query and key:
    PyTorch takes 0.2 us to say one."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"flex_attention: {name} must be a torch.Tensor, got {type(tensor).__name__}; "
                "jit.flash_attention takes tensors of other frameworks"
            )
        if tensor.dim() != 4:
            raise ValueError(
                f"flex_attention: {name} must have 4 dimensions, [batch, heads, length, head_dim], "
                f"got {list(tensor.shape)}"
            )
    shape, shape_kv = query.shape, key.shape
    heads, heads_kv = shape[1], shape_kv[1]
    if not enable_gqa and heads != heads_kv:
        raise ValueError(
            f"flex_attention: query and key must have the same number of heads, got {heads} and "
            f"{heads_kv}; pass enable_gqa=True where several heads share one of key"
        )
    if enable_gqa and heads_kv > 0 and heads % heads_kv != 0:
        raise ValueError(
            f"flex_attention: the heads of query must be a multiple of those of key, got {heads} "
            f"and {heads_kv}"
        )
    return shape, shape_kv


def _check_options(score_mod: Any, block_mask: Any, mask_mod: Any) -> None:
    for name, function in (("score_mod", score_mod), ("mask_mod", mask_mod)):
        if function is not None and not callable(function):
            raise TypeError(
                f"flex_attention: {name} must be callable, got {type(function).__name__}"
            )
    if block_mask is None:
        return
    if not all(hasattr(block_mask, name) for name in ("kv_num_blocks", "mask_mod", "BLOCK_SIZE")):
        raise TypeError(
            f"flex_attention: block_mask must be a BlockMask, got {type(block_mask).__name__}; "
            "make one with create_block_mask(), or pass a function as mask_mod="
        )
    if mask_mod is not None:
        raise ValueError(
            "flex_attention: block_mask has a mask_mod of its own; give only one of them, or make "
            "the BlockMask of and_masks(…)"
        )


def _wants_lse(return_lse: bool, return_aux: Any) -> bool:
    if return_aux is None:
        if return_lse:
            _warn_once(
                "PyTorch will remove return_lse; pass return_aux=AuxRequest(lse=True)",
                FutureWarning,
                5,
            )
        return bool(return_lse)
    if not all(hasattr(return_aux, name) for name in ("lse", "max_scores")):
        raise TypeError(
            "flex_attention: return_aux must be an AuxRequest of torch.nn.attention.flex_attention"
            f", such as AuxRequest(lse=True), got {return_aux!r}"
        )
    if return_lse:
        raise ValueError(
            "flex_attention: return_lse and return_aux ask for the same result in two ways; give "
            "only return_aux=AuxRequest(lse=True)"
        )
    return bool(return_aux.lse)


def _wants_maxima(return_aux: Any) -> bool:
    return return_aux is not None and bool(return_aux.max_scores)


def _warn_once(text: str, category: type[Warning], level: int) -> None:
    """Warns of the line that calls flex_attention(), which is so many frames above this one's."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(f"flex_attention: {text}", category, stacklevel=level)


def _with_batch(tensor: Any, query: Any, name: str) -> Any:
    if tensor.size(0) != 1:
        raise ValueError(
            f"flex_attention: {name} must have the batch of query, {query.size(0)}, or 1, got "
            f"{tensor.size(0)}"
        )
    return tensor.expand(query.size(0), -1, -1, -1)
