"""The results of moe_permute, without their values."""

from __future__ import annotations

from typing import Any

import torch


def out(x: Any, experts: Any, **options: Any) -> Any:
    """A row of x for each pair."""
    return x.new_empty((experts.shape[0] * experts.shape[1], x.shape[1]))


def offsets(x: Any, experts: Any, *, num_experts: int, **options: Any) -> Any:
    """A number for each expert."""
    return x.new_empty((num_experts,), dtype=torch.int32)


def inverse(x: Any, experts: Any, **options: Any) -> Any:
    """A row for each pair."""
    return x.new_empty(experts.shape, dtype=torch.int32)
