"""The results of moe_route, without their values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import is_known, ranks

_OP = "moe_route"
_MOST_CHOICES = 32


def _check(logits: Any, top_k: Any) -> None:
    ranks(_OP, (2,), "2 dimensions [tokens, experts]", logits=logits)
    if is_known(top_k < 1) or is_known(top_k > _MOST_CHOICES):
        raise ValueError(f"{_OP}: top_k must be 1 to {_MOST_CHOICES}, got {top_k}")


def weights(logits: Any, *, top_k: int, **options: Any) -> Any:
    """A number for each choice."""
    _check(logits, top_k)
    return logits.new_empty((logits.shape[0], top_k), dtype=torch.float32)


def experts(logits: Any, *, top_k: int, **options: Any) -> Any:
    """The choices."""
    _check(logits, top_k)
    return logits.new_empty((logits.shape[0], top_k), dtype=torch.int32)
