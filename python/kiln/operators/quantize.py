"""The results of quantize, without their values."""

from __future__ import annotations

from typing import Any

import torch


def out(
    x: Any,
    *,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    """Like x, contiguous, without the gates."""
    columns = x.shape[-1] if activation is None else x.shape[-1] // 2
    dtype = torch.float8_e4m3fn if out_dtype is None else out_dtype
    return x.new_empty((*x.shape[:-1], columns), dtype=dtype)


def scale_out(
    x: Any,
    *,
    group: int | None = 128,
    activation: str | None = None,
    scale_layout: str = "row",
    **options: Any,
) -> Any:
    """One number for each group of columns."""
    columns = x.shape[-1] if activation is None else x.shape[-1] // 2
    groups = min(columns, 1) if group is None else (columns + group - 1) // group
    shape = (*x.shape[:-1], groups)
    if scale_layout == "row" or x.dim() == 1:
        return x.new_empty(shape, dtype=torch.float32)
    stored = (*shape[:-2], shape[-1], shape[-2])
    return x.new_empty(stored, dtype=torch.float32).transpose(-1, -2)
