"""The results of moe_permute, without their values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import is_known, ranks

_OP, _PAIRS = "moe_permute", "2 dimensions [tokens, top_k]"
_MOST_EXPERTS = 512


def out(x: Any, experts: Any, **options: Any) -> Any:
    """A row of x for each pair."""
    ranks(_OP, (2,), "2 dimensions [tokens, columns]", x=x)
    ranks(_OP, (2,), _PAIRS, experts=experts)
    return x.new_empty((experts.shape[0] * experts.shape[1], x.shape[1]))


def offsets(x: Any, experts: Any, *, num_experts: int, **options: Any) -> Any:
    """A number for each expert."""
    if is_known(num_experts < 1) or is_known(num_experts > _MOST_EXPERTS):
        raise ValueError(f"{_OP}: num_experts must be 1 to {_MOST_EXPERTS}, got {num_experts}")
    return x.new_empty((num_experts,), dtype=torch.int32)


def inverse(x: Any, experts: Any, **options: Any) -> Any:
    """A row for each pair."""
    ranks(_OP, (2,), _PAIRS, experts=experts)
    return x.new_empty(experts.shape, dtype=torch.int32)
