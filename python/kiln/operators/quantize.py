"""The results of quantize, without their values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import is_known, ranks

_OP = "quantize"


def _columns(x: Any, activation: str | None) -> Any:
    """How many columns a row of the result has."""
    ranks(_OP, (1, 2, 3), "one to three dimensions, the last of which are columns", x=x)
    columns = x.shape[-1]
    if activation is None:
        return columns
    if is_known(columns % 2 == 1):
        raise ValueError(
            f"{_OP}: x must have an even number of columns, half of which are gates, got "
            f"{list(x.shape)}"
        )
    return columns // 2


def out(
    x: Any,
    *,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    """Like x, contiguous, without the gates."""
    columns = _columns(x, activation)
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
    columns = _columns(x, activation)
    if group is not None and is_known(group < 1):
        raise ValueError(f"{_OP}: group must be at least 1, or None for all of a row, got {group}")
    groups = min(columns, 1) if group is None else (columns + group - 1) // group
    shape = (*x.shape[:-1], groups)
    if scale_layout == "row" or x.dim() == 1:
        return x.new_empty(shape, dtype=torch.float32)
    stored = (*shape[:-2], shape[-1], shape[-2])
    return x.new_empty(stored, dtype=torch.float32).transpose(-1, -2)
