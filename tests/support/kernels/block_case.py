"""One GEMM call of 8-bit floats with scales of blocks: its inputs, the call itself and the
judgement."""

from __future__ import annotations

import dataclasses

import kiln
import torch
from compare import check_rows, f8_gate
from gemm_case import GemmCase
from kiln import jit
from named_case import NamedCase
from storage import DEVICE, DTYPES, filled, place, randn


def blocks_of(size):
    return -(-size // 128)


def scale_values(rows, groups, seed, peak):
    """Factors that all differ, so that no other one gives the same result, with NaN beside them.

    peak: one is 2^10 and most of the rest are tiny."""
    generator = torch.Generator(device=DEVICE).manual_seed(seed)
    values = torch.rand([rows, groups], device=DEVICE, generator=generator) + 0.25
    if peak:
        values *= 2.0**-12
        values[rows // 2, groups // 2] = 2.0**10
    return values


@dataclasses.dataclass(frozen=True)
class BlockCase(NamedCase):
    m: int = 70
    n: int = 200
    k: int = 300
    columns: bool = False  # scale_b has a factor for each column, not for 128 of them
    batch: int = 0
    contiguous: str = "k"  # dimension of scale_a: k, or m as vLLM and DeepGEMM lay them out
    trans_b: bool = False
    peak: bool = False
    dtype_b: str = "e4m3"
    out_dtype: str = "bf16"
    out_storage: str = "guarded"
    bias: str = ""
    residual: str = ""
    activation: str | None = None
    alpha: float = 1.0
    config: tuple | None = None

    def lead(self):
        return [self.batch] if self.batch else []

    def inputs(self):
        """a, w and their scales, [.., rows, K / 128]."""
        operands = GemmCase(dtype="e4m3", dtype_b=self.dtype_b, storage="guarded", m=self.m,
                            n=self.n, k=self.k, batch_a=self.batch, batch_b=self.batch)  # fmt: skip
        a, b = operands.inputs()
        groups, entries = blocks_of(self.k), self.n if self.columns else blocks_of(self.n)
        scales = [
            torch.stack([scale_values(rows, groups, seed + i, self.peak) for i in self._entries()])
            for rows, seed in ((self.m, 5), (entries, 105))
        ]
        if not self.batch:
            scales = [scale[0] for scale in scales]
        scale_a = filled("guarded", scales[0].mT).mT if self.contiguous == "m" else scales[0]
        return a, b.mT, filled("guarded", scale_a) if self.contiguous == "k" else scale_a, scales[1]

    def _entries(self):
        return range(self.batch or 1)

    def epilogue(self):
        options = dict(alpha=self.alpha, activation=self.activation)
        if self.bias:
            options["bias"] = randn([self.n], DTYPES[self.bias], 3)
        if self.residual:
            shape = [*self.lead(), self.m, self.n]
            options["residual"] = filled(self.out_storage, randn(shape, DTYPES[self.residual], 4))
        return options

    def output(self):
        return place(self.out_storage, [*self.lead(), self.m, self.n], DTYPES[self.out_dtype])

    def arguments(self):
        a, w, scale_a, scale_b = self.inputs()
        options = self.epilogue() | dict(scale_a=scale_a, trans_b=self.trans_b)
        if self.config:
            options["config"] = self.config
        if self.trans_b:
            return (a, w), options | dict(scale_b=scale_b)
        return (a, w.mT), options | dict(scale_b=scale_b.mT)

    def explain(self):
        operands, options = self.arguments()
        return kiln.explain("gemm", *operands, out=self.output().view, **options)

    def run(self):
        operands, options = self.arguments()
        jit.gemm(*operands, out=self.output().view, **options)

    def expected(self, dtype):
        """The product of the operands times their scales."""
        a, w, scale_a, scale_b = self.inputs()
        if not self.columns:
            scale_b = scale_b.repeat_interleave(128, -2)[..., : self.n, :]
        wide = [
            x.to(dtype) * scale.to(dtype).repeat_interleave(128, -1)[..., : self.k]
            for x, scale in ((a, scale_a), (w, scale_b))
        ]
        acc = self.alpha * (wide[0] @ wide[1].mT)
        options = self.epilogue()
        if self.bias:
            acc = acc + options["bias"].to(dtype)
        if self.activation == "silu":
            acc = torch.nn.functional.silu(acc)
        return acc + options["residual"].to(dtype) if self.residual else acc

    def check(self):
        operands, options = self.arguments()
        out = self.output()
        jit.gemm(*operands, out=out.view, **options)
        expected = self.expected(torch.float64)
        baseline = self.expected(torch.float32).to(out.view.dtype)
        gate = f8_gate(out.view.dtype, "")
        # An element that is far beyond its row is off by what its own sum loses.
        excused = gate.small * expected.abs().amax(-1) if self.peak else 0.0
        check_rows(out.view, expected, baseline, what=str(self), gate=gate, excused=excused)
        out.check_untouched(str(self))
        again = self.output()
        jit.gemm(*operands, out=again.view, **options)
        assert torch.equal(again.view, out.view), f"{self}: another result the second time"
