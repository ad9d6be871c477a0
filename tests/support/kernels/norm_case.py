"""One call of a norm: its inputs, the call itself and the judgement.

bf16 and f16: within one unit in the last place of the rounded float64 result for 99.9 % of the
elements of 2e-3 and more, and never further than two; smaller ones, which may be what is left of a
sum, within two units of 2e-3. f32: within 1e-5 of the row's RMS. residual_out has the sum's bits.
"""

from __future__ import annotations

import dataclasses

import kiln
import torch
from kiln import jit
from named_case import NamedCase
from reference import norm
from storage import DEVICE, DTYPES, filled, place, randn

OPS = ("rms_norm", "layer_norm")
SMALL = 2e-3


@dataclasses.dataclass(frozen=True)
class NormCase(NamedCase):
    op: str = "rms_norm"
    dtype: str = "bf16"
    out_dtype: str = ""  # "" = dtype
    weight: str = "same"  # a dtype, "same" as x's, "" = none
    bias: str = "same"  # of layer_norm
    shape: tuple = (3, 64)
    storage: str = "plain"  # of x
    residual_storage: str = ""  # "" = storage
    out_storage: str = "guarded"
    sums_storage: str = ""  # of residual_out, "" = out_storage
    weight_storage: str = "plain"
    residual: bool = False
    sums: str = ""  # residual_out: "new", or the tensor that it is: "residual" or "x"
    out: str = "new"  # or "x" or "residual"
    activation: str | None = None
    weight_offset: float = 0.0
    eps: float | None = None
    mean: float = 0.0
    scale: float = 1.0

    def inputs(self, seed=0):
        """x, residual (or None), and the keyword arguments weight and bias."""
        x = self._rows(self.storage, seed + 1)
        residual = None
        if self.residual:
            residual = self._rows(self.residual_storage or self.storage, seed + 2)
        vectors = {}
        if self.weight:
            vectors["weight"] = self._vector(self.weight, seed + 3)
        if self.bias and self.op == "layer_norm":
            vectors["bias"] = self._vector(self.bias, seed + 4)
        return x, residual, vectors

    def _rows(self, storage, seed):
        values = randn(self.shape, torch.float32, seed, self.scale) + self.mean
        return filled(storage, values.to(DTYPES[self.dtype]))

    def _vector(self, dtype, seed):
        dtype = DTYPES[self.dtype if dtype == "same" else dtype]
        return filled(self.weight_storage, randn(self.shape[-1:], dtype, seed))

    def options(self):
        options = dict(activation=self.activation, weight_offset=self.weight_offset)
        return options | ({} if self.eps is None else dict(eps=self.eps))

    def arguments(self, seed=0):
        """x, all keyword arguments, and what is written to (Placed, None where it is an input)."""
        x, residual, vectors = self.inputs(seed)
        arguments = {**self.options(), **vectors}
        inputs = {"x": x, "residual": residual}
        placed = {}
        wanted = {"out": (self.out, self.out_dtype or self.dtype, self.out_storage)}
        if self.residual:
            arguments["residual"] = residual
            if self.sums:
                storage = self.sums_storage or self.out_storage
                wanted["residual_out"] = (self.sums, self.dtype, storage)
        for name, (what, dtype, storage) in wanted.items():
            placed[name] = None
            if what == "new":
                placed[name] = place(storage, list(self.shape), DTYPES[dtype])
            arguments[name] = placed[name].view if what == "new" else inputs[what]
        return x, arguments, placed

    def explain(self):
        x, arguments, _ = self.arguments()
        return kiln.explain(self.op, x, **arguments)

    def run(self):
        x, arguments, _ = self.arguments()
        getattr(jit, self.op)(x, **arguments)

    def check(self, seed=0):
        """Returns what is written: the result, and the sums where they are wanted."""
        x, arguments, placed = self.arguments(seed)
        # Before the call, which may write to x.
        truth, lost = self._truth(x, arguments), self._lost(x)
        sums = None
        if self.residual:  # rounded once
            sums = (x.float() + arguments["residual"].float()).to(x.dtype)
        out = getattr(jit, self.op)(x, **arguments)
        assert out is arguments["out"]
        what = f"{self.op}, {self}"
        judge(what, out, truth, lost)
        if self.sums:
            same = torch.equal(arguments["residual_out"], sums)
            assert same, f"{what}: residual_out is not the rounded sum"
        for made in placed.values():
            if made is not None:
                made.check_untouched(what)
        return out, arguments.get("residual_out")

    def _truth(self, x, arguments):
        taken = ("weight", "bias", "residual")
        tensors = {name: arguments[name] for name in taken if name in arguments}
        return norm(self.op, x, **tensors, **self.options())

    def _lost(self, x):
        """What float32 takes from the mean of a row, in standard deviations."""
        if self.op == "rms_norm" or self.mean == 0:
            return 0.0
        x = x.double()
        ratio = x.mean(-1).abs() / x.std(-1, unbiased=False)
        return 2.0**-23 * ratio.max().item()


def judge(what, out, truth, lost=0.0):
    """`out` against float64; `lost` is excused beside the rest."""
    assert out.shape == truth.shape, f"{what}: shape {tuple(out.shape)}"
    if out.numel() == 0:
        return
    assert not torch.isnan(out).any(), f"{what}: {int(torch.isnan(out).sum())} NaN"
    error = (out.double() - truth).abs()
    if out.dtype == torch.float32:
        rms = truth.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)
        worst = (error / rms).max().item()
        assert worst <= 1e-5 + lost, f"{what}: off by {worst:.3g} of a row's RMS"
        return
    rounded = truth.to(out.dtype)
    epsilon = torch.finfo(out.dtype).eps
    small = truth.abs() < SMALL
    worst = torch.where(small, error, 0.0).max().item()
    allowed = 2 * SMALL * epsilon + lost
    assert worst <= allowed, f"{what}: elements near 0 are off by {worst:.3g}"
    apart = (_place(out) - _place(rounded)).abs()
    apart = torch.where(small | (error <= lost), 0, apart)
    assert apart.max() <= 2, f"{what}: off by {int(apart.max())} units in the last place"
    share = (apart <= 1).double().mean().item()
    assert share >= 0.999, f"{what}: {100 * share:.2f} % within a unit in the last place"


def _place(x):
    """Its place among all numbers of its dtype."""
    bits = x.contiguous().view(torch.int16).int()
    return torch.where(bits < 0, -32768 - bits, bits)


def zeros(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype, device=DEVICE)
