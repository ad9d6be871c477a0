"""One merge of partial results: its inputs, the call itself and the judgement.

out: within 2e-6 of what the magnitudes of the parts merge to, as parts of opposite signs cancel,
and half a unit in the last place more, which rounding to the output's dtype takes. lse: within 2e-6
of the largest magnitude.
"""

from __future__ import annotations

import dataclasses
import math

import kiln
import torch
from kiln import jit
from named_case import NamedCase
from reference import merge_states
from storage import DEVICE, DTYPES, filled, place, randn

HT, TH = (0, 2, 1), (0, 1, 2)  # from [parts, tokens, heads]


@dataclasses.dataclass(frozen=True)
class MergeCase(NamedCase):
    dtype: str = "bf16"
    out_dtype: str = ""  # "" = dtype
    shape: tuple = (2, 5, 3, 64)  # parts, tokens, heads, columns
    storage: str = "plain"  # of outs
    out_storage: str = "guarded"
    lse_storage: str = "plain"  # of lses, or "expanded": one number for all parts
    base: str = "e"
    layout: str = "ht"
    sinks: str = ""  # a dtype
    empty: tuple = ()  # (part, token): no keys there, NaN in outs
    spread: float = 3.0  # of the log-sum-exps

    def inputs(self, seed=0):
        """outs, lses as [parts, tokens, heads], and the sinks or None."""
        outs = randn(self.shape, torch.float32, seed + 1)
        lses = randn(self.shape[:3], torch.float32, seed + 2, self.spread)
        for i, (part, token) in enumerate(self.empty):
            outs[part, token] = math.nan
            lses[part, token] = math.inf if i % 2 else -math.inf
        sinks = None
        if self.sinks:
            sinks = randn(self.shape[2:3], DTYPES[self.sinks], seed + 3, self.spread)
        return filled(self.storage, outs.to(DTYPES[self.dtype])), lses, sinks

    def arguments(self, seed=0):
        outs, lses, sinks = self.inputs(seed)
        if self.lse_storage == "expanded":
            lses = lses[:1].expand(*self.shape[:3])
        order = HT if self.layout == "ht" else TH
        given = lses.permute(order)
        if self.lse_storage == "plain":
            given = given.contiguous()
        elif self.lse_storage != "expanded":
            given = filled(self.lse_storage, given)
        words = {"base": self.base, "layout": self.layout, "sinks": sinks}
        return outs, lses, given, words

    def explain(self):
        outs, _, given, words = self.arguments()
        return kiln.explain("merge_states", outs, given, **words)

    def run(self):
        outs, _, given, words = self.arguments()
        jit.merge_states(outs, given, **words)

    def check(self, seed=0):
        outs, lses, given, words = self.arguments(seed)
        out_dtype = DTYPES[self.out_dtype or self.dtype]
        out = place(self.out_storage, list(self.shape[1:]), out_dtype)
        lse = place("odd", list(given.shape[1:]), torch.float32)
        made = jit.merge_states(outs, given, **words, out=out.view, lse=lse.view, return_lse=True)
        assert made[0] is out.view and made[1] is lse.view
        truth, truth_lse = merge_states(outs, lses, words["sinks"], self.base)
        magnitudes, _ = merge_states(outs.abs(), lses, words["sinks"], self.base)
        judge(str(self), out.view, truth, magnitudes)
        judge_lse(str(self), lse.view if self.layout == "th" else lse.view.mT, truth_lse)
        out.check_untouched(str(self))
        lse.check_untouched(str(self))
        return out.view, lse.view


def judge(what, out, truth, magnitudes):
    """`magnitudes` are what the parts' magnitudes merge to, element by element."""
    assert out.shape == truth.shape, f"{what}: shape {tuple(out.shape)}"
    assert torch.equal(torch.isnan(out), torch.isnan(truth)), f"{what}: NaN in other places"
    error = (out.double() - truth).abs()
    dtype = torch.finfo(out.dtype)
    rounding = dtype.eps / 2 * truth.abs().clamp_min(dtype.smallest_normal)
    allowed = 2e-6 * magnitudes + rounding
    # NaN is not beyond anything.
    most = (error / allowed).nan_to_num().max().item() if out.numel() else 0.0
    assert most <= 1, f"{what}: an element is off by {most:.3g} of what is allowed"
    assert (out[truth == 0] == 0).all(), f"{what}: a row without keys is not 0"


def judge_lse(what, lse, truth):
    assert lse.shape == truth.shape, f"{what}: lse has shape {tuple(lse.shape)}"
    finite = torch.isfinite(truth)
    same = torch.equal(lse.double()[~finite], truth[~finite])
    assert same, f"{what}: lse is not -inf where no part has keys"
    error = (lse.double() - truth)[finite].abs()
    if error.numel():
        allowed = 2e-6 * max(1.0, truth[finite].abs().max().item())
        assert error.max() <= allowed, f"{what}: lse is off by {error.max().item():.3g}"


def empty_like_lses(*shape):
    return torch.zeros(shape, dtype=torch.float32, device=DEVICE)
