"""The result of scaled_dot_product_attention, without its values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import ranks

_OP = "scaled_dot_product_attention"
_DIMS = "2 to 5 dimensions, [batch.., heads, length, head_dim]"


def out(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    enable_gqa: bool = False,
    **options: Any,
) -> Any:
    """Like query, with value's head dim, broadcast."""
    ranks(_OP, (2, 3, 4, 5), _DIMS, query=query, key=key, value=value)
    kept = 3 if enable_gqa else 2  # dimensions that do not broadcast
    lead = torch.broadcast_shapes(*(tensor.shape[:-kept] for tensor in (query, key, value)))
    return query.new_empty((*lead, *query.shape[-kept:-1], value.shape[-1]))
