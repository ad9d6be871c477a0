# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.scaled_dot_product_attention where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag, number
from .._values import check

_OP = "scaled_dot_product_attention"
_OPS = torch.ops.kiln


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: Any = 0.0,
    is_causal: Any = False,
    *,
    scale: Any = None,
    enable_gqa: Any = False,
) -> Any:
    """kiln.jit.scaled_dot_product_attention as operators of PyTorch."""
    given = {
        "query": query,
        "key": key,
        "value": value,
        "attn_mask": attn_mask,
    }
    check(_OP, given)
    dropout_p = number(_OP, "dropout_p", dropout_p)
    is_causal = flag(_OP, "is_causal", is_causal)
    options = {
        "scale": None if scale is None else number(_OP, "scale", scale),
        "enable_gqa": flag(_OP, "enable_gqa", enable_gqa),
    }
    return _OPS.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, **options
    )
