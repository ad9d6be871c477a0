"""The results of flash_attention_with_kvcache, without their values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import default_dtype, ranks

_OP, _DIMS = "flash_attention_with_kvcache", "4 dimensions [batch, len_q, heads, head_dim]"
_CACHE = "4 dimensions [batch or pages, length or page_size, heads, head_dim]"


def out(q: Any, k_cache: Any, v_cache: Any, *, out_scale: Any = None, **options: Any) -> Any:
    """Like q, with the head dim of v_cache; float8_e4m3fn with out_scale."""
    ranks(_OP, (4,), _DIMS, q=q)
    ranks(_OP, (4,), _CACHE, v_cache=v_cache, k_cache=k_cache)
    dtype = default_dtype(q.dtype, None if out_scale is None else torch.float8_e4m3fn)
    return q.new_empty((*q.shape[:-1], v_cache.shape[-1]), dtype=dtype)


def lse(q: Any, k_cache: Any, v_cache: Any, **options: Any) -> Any:
    """The log-sum-exp: [batch, heads, len_q] in float32."""
    ranks(_OP, (4,), _DIMS, q=q)
    batch, len_q, heads, _ = q.shape
    return q.new_empty((batch, heads, len_q), dtype=torch.float32)
