"""The engines' layers ask here which head dims and softcaps attention is served for."""

from __future__ import annotations

from typing import Any

LARGEST_SOFTCAP = 1000.0


def is_head_dim(dim: Any) -> bool:
    """Whether there are kernels for a head dim of queries of 16 bits."""
    return dim % 8 == 0 and (0 < dim <= 256 or dim == 512)
