"""The result of plan_attention, without its values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import is_known, ranks

_OP = "plan_attention"
_WORDS = 16  # of a thread block
_MOST_BLOCKS = 1024  # of a launch that shares keys


def plan(q: Any, k: Any, v: Any, *, cu_seqlens_q: Any = None, **options: Any) -> Any:
    """int32 words for two launches, as jit/attention/plan.cpp bounds them."""
    ranks(_OP, (3, 4), "3 dimensions [tokens, heads, head_dim]", q=q)
    ranks(_OP, (3, 4), "4 dimensions [batch or pages, length, heads, head_dim]", v=v, k=k)
    if cu_seqlens_q is not None:
        ranks(_OP, (1,), "1 dimension [batch + 1]", cu_seqlens_q=cu_seqlens_q)
    *tokens, heads, _ = q.shape
    heads_kv = k.shape[-2]
    if is_known(heads_kv == 0) or is_known(heads % heads_kv != 0):
        raise ValueError(
            f"{_OP}: q must have a multiple of the heads of k, got {heads} heads for {heads_kv}"
        )
    batch = tokens[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    rows = tokens[0] * (tokens[1] if len(tokens) > 1 else 1) * (heads // heads_kv)
    blocks = torch.sym_max(_MOST_BLOCKS, heads_kv * (rows // 16 + batch))
    return q.new_empty((2 * blocks * _WORDS,), dtype=torch.int32)
