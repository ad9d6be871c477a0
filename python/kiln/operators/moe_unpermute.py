"""The result of moe_unpermute, without its values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import ranks

_OP = "moe_unpermute"


def out(
    y: Any,
    inverse: Any,
    weights: Any = None,
    *,
    out_dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    """A row for each token."""
    ranks(_OP, (2,), "2 dimensions [rows, columns]", y=y)
    ranks(_OP, (2,), "2 dimensions [tokens, top_k]", inverse=inverse)
    dtype = y.dtype if out_dtype is None else out_dtype
    return y.new_empty((inverse.shape[0], y.shape[1]), dtype=dtype)
