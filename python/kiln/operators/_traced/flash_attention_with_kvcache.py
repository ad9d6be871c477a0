# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.flash_attention_with_kvcache where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag, integer, number
from .. import flash_attention_with_kvcache as _flash_attention_with_kvcache
from .._appends import call as call_with_append
from .._values import check, one_flag, window_numbers, write_to
from .._variants import call as call_with_variant

_OP = "flash_attention_with_kvcache"
_OPS = torch.ops.kiln


def flash_attention_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    *,
    cache_seqlens: Any,
    block_table: Any = None,
    kv_indptr: Any = None,
    kv_indices: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    k_new: Any = None,
    v_new: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    rotary_interleaved: Any = True,
    causal: Any = False,
    window: Any = (-1, -1),
    tree_mask: Any = None,
    softcap: Any = 0.0,
    scale: Any = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    variant: Any = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    cp_world: Any = 1,
    cp_rank: Any = 0,
    cp_interleave: Any = 1,
    cp_seqused_k_total: Any = None,
    out_scale: Any = None,
    num_splits: Any = 0,
    plan: Any = None,
    out: Any = None,
    lse: Any = None,
    return_lse: Any = False,
) -> Any:
    """kiln.jit.flash_attention_with_kvcache as operators of PyTorch."""
    given = {
        "q": q,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "cache_seqlens": cache_seqlens,
        "block_table": block_table,
        "kv_indptr": kv_indptr,
        "kv_indices": kv_indices,
        "cache_batch_idx": cache_batch_idx,
        "cache_leftpad": cache_leftpad,
        "tree_mask": tree_mask,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "q_scale": q_scale,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "cp_seqused_k_total": cp_seqused_k_total,
        "out_scale": out_scale,
        "plan": plan,
        "out": out,
        "lse": lse,
    }
    check(_OP, given)
    flag(_OP, "return_lse", return_lse)
    options = {
        "cache_seqlens": cache_seqlens,
        "block_table": block_table,
        "kv_indptr": kv_indptr,
        "kv_indices": kv_indices,
        "cache_batch_idx": cache_batch_idx,
        "cache_leftpad": cache_leftpad,
        "causal": one_flag(_OP, "causal", causal),
        "window": window_numbers(_OP, window),
        "tree_mask": tree_mask,
        "softcap": number(_OP, "softcap", softcap),
        "scale": None if scale is None else number(_OP, "scale", scale),
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "q_scale": q_scale,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "cp_world": integer(_OP, "cp_world", cp_world),
        "cp_rank": integer(_OP, "cp_rank", cp_rank),
        "cp_interleave": integer(_OP, "cp_interleave", cp_interleave),
        "cp_seqused_k_total": cp_seqused_k_total,
        "out_scale": out_scale,
        "num_splits": integer(_OP, "num_splits", num_splits),
        "plan": plan,
    }
    new = {
        "k_new": k_new,
        "v_new": v_new,
        "rotary_cos": rotary_cos,
        "rotary_sin": rotary_sin,
        "rotary_interleaved": rotary_interleaved,
    }
    if any(x is not None for x in (k_new, v_new, rotary_cos, rotary_sin)):
        return call_with_append((q, k_cache, v_cache), new, variant, options, out, lse, return_lse)
    if variant is not None:
        first = (q, k_cache, v_cache)
        return call_with_variant(_OP, first, variant, options, out, lse, return_lse)
    if out is None and lse is None:
        if return_lse:
            return _OPS.flash_attention_with_kvcache_lse(q, k_cache, v_cache, **options)
        return _OPS.flash_attention_with_kvcache(q, k_cache, v_cache, **options)
    if out is None:
        out = _flash_attention_with_kvcache.out(q, k_cache, v_cache, **options)
    if lse is None and return_lse:
        lse = _flash_attention_with_kvcache.lse(q, k_cache, v_cache, **options)
    write_to(
        _OPS.flash_attention_with_kvcache_out, q, k_cache, v_cache, **options, out=out, lse=lse
    )
    return (out, lse) if return_lse else out
