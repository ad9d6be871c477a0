"""The result of rms_norm, without its values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import default_dtype


def out(x: Any, *rest: Any, out_dtype: torch.dtype | None = None, **options: Any) -> Any:
    """Like x, contiguous."""
    if x.dim() == 0:
        raise ValueError("rms_norm: x must have at least one dimension")
    return x.new_empty(x.shape, dtype=default_dtype(x.dtype, out_dtype))
