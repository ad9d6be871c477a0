"""One call of quantize: its inputs, the call itself and the judgement.

Without an activation, the scales and every element are those of the textbook's float32 arithmetic.
With one, whose last bits differ, scales are within 4e-6 of them, and an element may be the next one
of its dtype where its quotient is nearly halfway.
"""

from __future__ import annotations

import dataclasses
import math

import kiln
import torch
import torch.nn.functional as functional
from kiln import jit
from named_case import NamedCase
from storage import DEVICE, DTYPES, filled, place, randn

OUT_DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "int8": torch.int8}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "int8": 127.0}
GATES = {
    "swiglu": functional.silu,
    "geglu": functional.gelu,
    "geglu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


@dataclasses.dataclass(frozen=True)
class QuantizeCase(NamedCase):
    shape: tuple = (5, 256)  # of the result
    dtype: str = "bf16"
    out_dtype: str = "e4m3"
    group: int | None = 128
    activation: str | None = None
    power_of_two: bool = False
    counts: tuple = ()
    storage: str = "plain"  # of x
    out_storage: str = "guarded"
    columns_first: bool = False  # of scale_out
    spread: float = 1.0

    @property
    def words(self):
        counts = torch.tensor(self.counts, dtype=torch.int32, device=DEVICE)
        return {
            "group": self.group,
            "activation": self.activation,
            "scale_power_of_two": self.power_of_two,
            "counts": counts if self.counts else None,
        }

    def x(self, seed=1):
        """Rows of very different magnitudes, with one large element in the last column."""
        *rows, columns = self.shape
        x = randn([*rows, columns * (2 if self.activation else 1)], torch.float32, seed)
        x *= torch.exp(randn([*rows, 1], torch.float32, seed + 1) * self.spread)
        x[..., -1] *= 50
        if self.counts:  # nothing of the rows beyond the counts is read
            for expert, count in enumerate(self.counts):
                x[expert, max(count, 0) :] = math.nan
        return filled(self.storage, x.to(DTYPES[self.dtype]))

    def outputs(self):
        groups = math.ceil(self.shape[-1] / (self.group or max(self.shape[-1], 1)))
        dtype = OUT_DTYPES[self.out_dtype]
        out = place(self.out_storage if self.out_dtype != "int8" else "plain", list(self.shape),
                    torch.float32 if self.out_dtype == "int8" else dtype)  # fmt: skip
        if self.out_dtype == "int8":
            out.view = torch.full(self.shape, 99, dtype=torch.int8, device=DEVICE)
        shape = [*self.shape[:-1], groups]
        if self.columns_first:
            stored = place("odd", [*shape[:-2], shape[-1], shape[-2]], torch.float32)
            stored.view = stored.view.mT
            return out, stored
        return out, place("odd", shape, torch.float32)

    def explain(self):
        out, scale = self.outputs()
        return kiln.explain("quantize", self.x(), **self.words, out=out.view, scale_out=scale.view)

    def run(self):
        out, scale = self.outputs()
        jit.quantize(self.x(), **self.words, out=out.view, scale_out=scale.view)

    def check(self, seed=1):
        x = self.x(seed)
        out, scale = self.outputs()
        made = jit.quantize(x, **self.words, out=out.view, scale_out=scale.view)
        assert made[0] is out.view and made[1] is scale.view
        exists = torch.ones(self.shape[:-1], dtype=torch.bool, device=DEVICE)
        for expert, count in enumerate(self.counts):
            exists[expert, max(count, 0) :] = False
        truth = textbook(x, self)
        judge(str(self), (out.view, scale.view), truth, self, exists)
        if self.out_dtype != "int8":
            out.check_untouched(str(self))
        scale.check_untouched(str(self))


def textbook(x, case):
    """The element values, float32, and the scales."""
    y = x.float()
    if case.activation:
        gate, up = y.double().chunk(2, -1)
        y = (GATES[case.activation](gate) * up).float()
    columns = y.shape[-1]
    group = case.group or columns
    groups = math.ceil(columns / group)
    padded = functional.pad(y, (0, groups * group - columns)).unflatten(-1, (groups, group))
    largest = LARGEST[case.out_dtype]
    most = padded.abs().nan_to_num(nan=0.0, posinf=math.inf).amax(-1).clamp_min(1e-4)
    # On a GPU PyTorch multiplies by the inverse of a number, and divides by a tensor.
    scale = most / torch.full_like(most, largest)
    if case.power_of_two:
        mantissa, exponent = torch.frexp(scale)
        scale = torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())
    codes = (padded / scale.unsqueeze(-1)).flatten(-2)[..., :columns]
    if case.out_dtype == "int8":
        codes = codes.round().nan_to_num(0.0)
    else:
        codes = codes.clamp(-largest, largest).to(OUT_DTYPES[case.out_dtype]).float()
    return codes, scale


def judge(what, results, truth, case, exists):
    out, scale = results[0].float(), results[1]
    codes, scales = truth
    assert out.shape == codes.shape and scale.shape == scales.shape, f"{what}: shapes"
    if not case.activation:
        same = (out == codes) | (torch.isnan(out) & torch.isnan(codes))
        wrong = int((~same[exists]).sum())
        assert wrong == 0, f"{what}: {wrong} of {out.numel()} elements differ"
        assert torch.equal(scale[exists], scales[exists]), f"{what}: scales differ"
    else:
        error = ((scale - scales).abs() / scales)[exists]
        assert error.numel() == 0 or error.max() <= 4e-6, f"{what}: scales are off by {error.max()}"
        step = 1.0 if case.out_dtype == "int8" else codes.abs().clamp_min(2**-6) / 4
        off = (out - codes).abs()[exists]
        allowed = step if isinstance(step, float) else step[exists]
        assert (off <= allowed).all(), f"{what}: off by more than one step"
        assert (off != 0).float().sum() <= 1 + 0.005 * off.numel(), f"{what}: {(off != 0).sum()}"
    if not exists.all():
        untouched = torch.isnan(scale[~exists]).all()
        assert untouched, f"{what}: scales of rows that do not exist were written"
        if case.out_dtype != "int8":
            assert torch.isnan(out[~exists]).all(), f"{what}: rows that do not exist were written"
