"""The result of moe_unpermute, without its values."""

from __future__ import annotations

from typing import Any

import torch


def out(
    y: Any,
    inverse: Any,
    weights: Any = None,
    *,
    out_dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    """A row for each token."""
    dtype = y.dtype if out_dtype is None else out_dtype
    return y.new_empty((inverse.shape[0], y.shape[1]), dtype=dtype)
