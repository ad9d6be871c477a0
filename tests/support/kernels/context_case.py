"""A call whose keys are spread over devices: the part of each, and what the parts are together."""

from __future__ import annotations

import dataclasses

import torch
from attention_case import judge
from kiln import jit
from reference import visible
from storage import DEVICE
from varlen_case import Call, VarlenCase, integers


@dataclasses.dataclass(frozen=True)
class ContextCase(VarlenCase):
    """Lengths of keys are those of all devices."""

    world: int = 2
    interleave: int = 1

    def positions(self, b, rank):
        """Where the keys that a device has of sequence b lie in it."""
        at = torch.arange(self.lens_k[b], device=DEVICE)
        return at[at // self.interleave % self.world == rank]

    def part(self, given, rank):
        """The call of one device, and its keys."""
        own = []
        for b, (q, k, v) in enumerate(given):
            at = self.positions(b, rank)
            own.append((q, k[at], v[at]))
        lengths = tuple(len(k) for _, k, _ in own)
        case = dataclasses.replace(self, lens_k=lengths)
        return ContextCall(case, own, self, rank), own

    def check(self, seed=0):
        """Each device's part, and the parts merged."""
        given = self.inputs(seed)
        parts = []
        for rank in range(self.world):
            call, own = self.part(given, rank)
            call.run()
            call.judge(own)
            parts.append(call)
        whole = self.call(given)
        if self.op == "varlen":
            tokens = sum(self.lens_q)
            outs = torch.stack([part.out.view[:tokens] for part in parts])
            lses = torch.stack([part.lse[:, :tokens] for part in parts])
            out, lse = jit.merge_states(outs, lses, return_lse=True)
            for b, (q, k, v) in enumerate(given):
                whole.lse = lse
                judge(
                    f"{self}, sequence {b} merged", q[None], k[None], v[None],
                    whole.queries(out, b)[None], whole.lse_of(b)[None], **whole.options_of(b),
                )  # fmt: skip
        return parts

    def run(self):
        given = self.inputs()
        for rank in range(self.world):
            self.part(given, rank)[0].run()


class ContextCall(Call):
    def __init__(self, case, own, whole, rank):
        super().__init__(case, own)
        self.whole, self.rank = whole, rank
        self.keywords.update(
            cp_world=whole.world, cp_rank=rank, cp_interleave=whole.interleave,
            cp_seqused_k_total=integers(whole.lens_k),
        )  # fmt: skip

    def options_of(self, b):
        """Masks and ALiBi as hooks that are asked about positions."""
        options = super().options_of(b)
        causal, window = options.pop("causal"), options.pop("window")
        slopes = options.pop("alibi_slopes", None)
        positions = self.whole.positions(b, self.rank)

        def moved(at):
            q = at.row + self.whole.lens_k[b] - at.len_q
            return dataclasses.replace(at, q=q, kv=positions[at.kv])

        def logits(logit, at):
            at = moved(at)
            each = slopes[None] if slopes.dim() == 1 else slopes
            return logit - each.to(logit.dtype)[..., None, None] * (at.q - at.kv).abs()

        return {
            **options,
            "mask": lambda at: visible(moved(at), causal, window),
            "logits": None if slopes is None else logits,
        }
