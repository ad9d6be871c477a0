"""The results of flash_attention, without their values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import default_dtype, ranks

_DIMS = "4 dimensions [batch, length, heads, head_dim] or [batch, heads, length, head_dim]"


def out(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """Like q, with v's head dim."""
    ranks("flash_attention", (4,), _DIMS, q=q, k=k, v=v)
    return q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=default_dtype(q.dtype, None))


def lse(q: Any, k: Any, v: Any, *, layout: str = "bshd", **options: Any) -> Any:
    """The log-sum-exp: [batch, heads, len_q] in float32."""
    ranks("flash_attention", (4,), _DIMS, q=q)
    batch, one, other, _ = q.shape
    heads_and_rows = (other, one) if layout == "bshd" else (one, other)
    return q.new_empty((batch, *heads_and_rows), dtype=torch.float32)
