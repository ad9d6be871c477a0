"""The result of plan_attention, without its values."""

from __future__ import annotations

from typing import Any

import torch

_WORDS = 16  # of a thread block
_MOST_BLOCKS = 1024  # of a launch that shares keys


def plan(q: Any, k: Any, v: Any, *, cu_seqlens_q: Any = None, **options: Any) -> Any:
    """int32 words for two launches, as jit/attention/plan.cpp bounds them."""
    *tokens, heads, _ = q.shape
    heads_kv = k.shape[-2]
    batch = tokens[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    rows = tokens[0] * (tokens[1] if len(tokens) > 1 else 1) * (heads // heads_kv)
    blocks = torch.sym_max(_MOST_BLOCKS, heads_kv * (rows // 16 + batch))
    return q.new_empty((2 * blocks * _WORDS,), dtype=torch.int32)
