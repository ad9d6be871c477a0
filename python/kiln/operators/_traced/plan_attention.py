# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.plan_attention where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import integer, number
from .._values import check, one_flag, refuse, window_numbers

_OP = "plan_attention"
_OPS = torch.ops.kiln


def plan_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    cu_seqlens_q: Any = None,
    max_seqlen_q: Any = 0,
    max_seqlen_k: Any = 0,
    cu_seqlens_k: Any = None,
    seqused_k: Any = None,
    cache_seqlens: Any = None,
    block_table: Any = None,
    kv_indptr: Any = None,
    kv_indices: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    causal: Any = False,
    window: Any = (-1, -1),
    tree_mask: Any = None,
    softcap: Any = 0.0,
    alibi_slopes: Any = None,
    variant: Any = None,
    cp_world: Any = 1,
    cp_rank: Any = 0,
    cp_interleave: Any = 1,
    cp_seqused_k_total: Any = None,
    out_scale: Any = None,
    num_splits: Any = 0,
    plan: Any = None,
) -> Any:
    """kiln.jit.plan_attention as operators of PyTorch."""
    refuse(_OP, variant=variant)
    given = {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_k": seqused_k,
        "cache_seqlens": cache_seqlens,
        "block_table": block_table,
        "kv_indptr": kv_indptr,
        "kv_indices": kv_indices,
        "cache_batch_idx": cache_batch_idx,
        "cache_leftpad": cache_leftpad,
        "tree_mask": tree_mask,
        "alibi_slopes": alibi_slopes,
        "cp_seqused_k_total": cp_seqused_k_total,
        "out_scale": out_scale,
        "plan": plan,
    }
    check(_OP, given)
    options = {
        "cu_seqlens_q": cu_seqlens_q,
        "max_seqlen_q": integer(_OP, "max_seqlen_q", max_seqlen_q),
        "max_seqlen_k": integer(_OP, "max_seqlen_k", max_seqlen_k),
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_k": seqused_k,
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
        "alibi_slopes": alibi_slopes,
        "cp_world": integer(_OP, "cp_world", cp_world),
        "cp_rank": integer(_OP, "cp_rank", cp_rank),
        "cp_interleave": integer(_OP, "cp_interleave", cp_interleave),
        "cp_seqused_k_total": cp_seqused_k_total,
        "out_scale": out_scale,
        "num_splits": integer(_OP, "num_splits", num_splits),
    }
    if plan is None:
        return _OPS.plan_attention(q, k, v, **options)
    _OPS.plan_attention_out(q, k, v, **options, plan=plan)
    return plan
