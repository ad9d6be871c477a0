"""The results of moe_route, without their values."""

from __future__ import annotations

from typing import Any

import torch


def weights(logits: Any, *, top_k: int, **options: Any) -> Any:
    """A number for each choice."""
    return logits.new_empty((logits.shape[0], top_k), dtype=torch.float32)


def experts(logits: Any, *, top_k: int, **options: Any) -> Any:
    """The choices."""
    return logits.new_empty((logits.shape[0], top_k), dtype=torch.int32)
