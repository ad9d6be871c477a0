"""The results of flash_attention_with_kvcache, without their values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import default_dtype


def out(q: Any, k_cache: Any, v_cache: Any, *, out_scale: Any = None, **options: Any) -> Any:
    """Like q, with the head dim of v_cache; float8_e4m3fn with out_scale."""
    dtype = default_dtype(q.dtype, None if out_scale is None else torch.float8_e4m3fn)
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1]), dtype=dtype)


def lse(q: Any, k_cache: Any, v_cache: Any, **options: Any) -> Any:
    """The log-sum-exp: [batch, heads, len_q] in float32."""
    batch, len_q, heads, _ = q.shape
    return q.new_empty((batch, heads, len_q), dtype=torch.float32)
