# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.flash_attention_varlen where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag, integer, number
from .. import flash_attention_varlen as _flash_attention_varlen
from .._values import check, one_flag, window_numbers, write_to
from .._variants import call as call_with_variant

_OP = "flash_attention_varlen"
_OPS = torch.ops.kiln


def flash_attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    *,
    cu_seqlens_q: Any,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    cu_seqlens_k: Any = None,
    seqused_k: Any = None,
    block_table: Any = None,
    kv_indptr: Any = None,
    kv_indices: Any = None,
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
    """kiln.jit.flash_attention_varlen as operators of PyTorch."""
    given = {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_k": seqused_k,
        "block_table": block_table,
        "kv_indptr": kv_indptr,
        "kv_indices": kv_indices,
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
        "cu_seqlens_q": cu_seqlens_q,
        "max_seqlen_q": integer(_OP, "max_seqlen_q", max_seqlen_q),
        "max_seqlen_k": integer(_OP, "max_seqlen_k", max_seqlen_k),
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_k": seqused_k,
        "block_table": block_table,
        "kv_indptr": kv_indptr,
        "kv_indices": kv_indices,
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
    if variant is not None:
        first = (q, k, v)
        return call_with_variant(_OP, first, variant, options, out, lse, return_lse)
    if out is None and lse is None:
        if return_lse:
            return _OPS.flash_attention_varlen_lse(q, k, v, **options)
        return _OPS.flash_attention_varlen(q, k, v, **options)
    if out is None:
        out = _flash_attention_varlen.out(q, k, v, **options)
    if lse is None and return_lse:
        lse = _flash_attention_varlen.lse(q, k, v, **options)
    write_to(_OPS.flash_attention_varlen_out, q, k, v, **options, out=out, lse=lse)
    return (out, lse) if return_lse else out
