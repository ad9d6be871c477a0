"""A call whose newest queries are the nodes of trees: its words, and the masks that they mean."""

from __future__ import annotations

import dataclasses

import torch
from storage import DEVICE
from varlen_case import Call, VarlenCase

WORD = 64


@dataclasses.dataclass(frozen=True)
class TreeCase(VarlenCase):
    """tree: "ancestors" of nodes with random parents; "random" bits; "none" set; "all" set, also
    those behind the sequence's last query."""

    causal: bool = False
    tree: str = "ancestors"
    words: str = "int64"  # or "uint64", or "strided"

    def call(self, given):
        return TreeCall(self, given)

    def bits(self, b):
        """[len_q, WORD]: which of the new keys each query of a sequence sees."""
        generator = torch.Generator().manual_seed(b)
        count = self.lens_q[b]
        if self.tree in ("none", "all"):
            return torch.full([count, WORD], self.tree == "all")
        if self.tree == "random":
            return torch.rand([count, WORD], generator=generator) < 0.3
        bits = torch.eye(count, WORD, dtype=torch.bool)
        for node in range(1, count):
            bits[node] |= bits[int(torch.randint(node, [], generator=generator))]
        return bits


def words_of(bits):
    """[rows]: bit j of a row's word is its j-th number."""
    halves = (bits.long().view(-1, 2, WORD // 2) << torch.arange(WORD // 2)).sum(-1)
    return halves[:, 0] | halves[:, 1] << WORD // 2


class TreeCall(Call):
    def __init__(self, case, given):
        super().__init__(case, given)
        self.bits = [case.bits(b).to(DEVICE) for b in range(case.batch)]
        # Rows of padding have words, too.
        words = torch.full(self.q.shape[: self.q.dim() - 2], -1, dtype=torch.int64, device=DEVICE)
        for b, bits in enumerate(self.bits):
            self.queries(words, b).copy_(words_of(bits.cpu()))
        if case.words == "strided":
            words = words[..., None].expand(*words.shape, 3).contiguous()[..., 1]
        if case.words == "uint64":
            words = words.view(torch.uint64)
        self.keywords["tree_mask"] = words

    def options_of(self, b):
        def mask(at):
            key = at.kv - (at.len_kv - at.len_q)
            row = at.row.flatten()
            seen = self.bits[b][row][:, key.flatten().clamp(0, WORD - 1)]
            return (key < 0) | seen[None, None]

        return {**super().options_of(b), "causal": False, "mask": mask}
