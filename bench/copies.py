"""A plain copy of as many bytes as an operation moves, timed beside it as if it were a peer."""

from __future__ import annotations

import torch
from measure import Contender


def copy(byte_count, sets, result):
    """PyTorch's copy_ that reads and writes `byte_count` in all. It computes nothing, so what is
    checked is `result()`, the truth itself."""
    words = max(1, byte_count // 32)  # of 16 bytes, half of them read
    pairs = [
        [torch.zeros(words * 16, dtype=torch.uint8, device="cuda") for _ in range(2)]
        for _ in range(sets)
    ]

    def call(index):
        source, target = pairs[index]
        return target.copy_(source)

    return Contender(call, view=lambda copied: result())
