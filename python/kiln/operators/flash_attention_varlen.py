"""The results of flash_attention_varlen, without their values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import default_dtype, ranks

_OP, _DIMS = "flash_attention_varlen", "3 dimensions [tokens, heads, head_dim]"
_PAGED = "4 dimensions [batch or pages, length or page_size, heads, head_dim]"


def out(q: Any, k: Any, v: Any, *, out_scale: Any = None, **options: Any) -> Any:
    """Like q, with v's head dim; float8_e4m3fn with out_scale."""
    ranks(_OP, (3,), _DIMS, q=q)
    ranks(_OP, (3, 4), _PAGED, v=v, k=k)
    dtype = default_dtype(q.dtype, None if out_scale is None else torch.float8_e4m3fn)
    return q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=dtype)


def lse(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """The log-sum-exp: [heads, tokens] in float32."""
    ranks(_OP, (3,), _DIMS, q=q)
    tokens, heads, _ = q.shape
    return q.new_empty((heads, tokens), dtype=torch.float32)
