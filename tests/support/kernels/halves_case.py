"""A call whose keys lie on two ranks in halves: the call of each, whose results merge to it."""

from __future__ import annotations

import dataclasses

import torch
from context_case import ContextCase
from storage import DEVICE


@dataclasses.dataclass(frozen=True)
class HalvesCase(ContextCase):
    """Rank 0 has the first half of each sequence's keys, or all if they fit into one page.

    The queries are the sequence's last tokens. The rank that has its last keys therefore masks them
    as if there were no others, and the queries see every key of the other rank."""

    def positions(self, b, rank):
        length = self.lens_k[b]
        middle = length // 2 if length > self.page else length
        bounds = (0, middle, length)
        return torch.arange(bounds[rank], bounds[rank + 1], device=DEVICE)

    def part(self, given, rank):
        own, has_last = [], []
        for b, (q, k, v) in enumerate(given):
            at = self.positions(b, rank)
            own.append((q, k[at], v[at]))
            has_last.append(bool((at == len(k) - 1).any()))
        lengths = tuple(len(k) for _, k, _ in own)
        return dataclasses.replace(self, lens_k=lengths, causal=tuple(has_last)).call(own), own
