"""One GEMM call with rows in groups: its inputs, the call and the judgement, group by group."""

from __future__ import annotations

import dataclasses

import kiln
import torch
from compare import GATES as ROW_GATES
from compare import check_rows, f8_gate
from kiln import jit
from named_case import NamedCase
from reference import GATED, gemm, gemm_baseline
from storage import DEVICE, DTYPES, F8_DTYPES, INPUT_DTYPES, filled, place, randn

UNTOUCHED = 7.0


def blocks_of(size):
    return -(-size // 128)


@dataclasses.dataclass(frozen=True)
class GroupedCase(NamedCase):
    by: str = "offsets"
    sizes: tuple = (5, 0, 33, 1)  # rows of each group
    beyond: int = 3  # rows of a and out behind those of groups, or of each group
    n: int = 64
    k: int = 64
    dtype: str = "bf16"
    out_dtype: str = ""  # "" = dtype, bf16 for 8-bit floats
    layout_b: str = "t"  # t: weights are [groups, n, k]; n: [groups, k, n]
    activation: str | None = None
    gate: str = ""
    bias: str = ""  # a dtype
    bias_form: str = "groups"  # [groups, n], or "all": [n], or "batch": [groups, 1, n]
    residual: str = ""  # a dtype
    scales: str = ""  # vectors: of rows and columns; blocks, columns: of 128 of K
    alpha: float = 1.0
    out_storage: str = "guarded"
    expected_rows: int = 0
    config: tuple | None = None
    accumulator: str = "float32"

    @property
    def groups(self):
        return len(self.sizes)

    def lead(self):
        """The shape of a and out without their columns."""
        if self.by == "offsets":
            return [sum(self.sizes) + self.beyond]
        return [self.groups, max(self.sizes) + self.beyond]

    def rows_of(self, tensor):
        """The rows of each group."""
        if self.by == "counts":
            return [rows[:size] for rows, size in zip(tensor, self.sizes, strict=True)]
        return list(tensor[: sum(self.sizes)].split(list(self.sizes)))

    def others_of(self, tensor):
        """The rows of no group, as views."""
        if self.by == "offsets":
            return [tensor[sum(self.sizes) :]]
        return [rows[size:] for rows, size in zip(tensor, self.sizes, strict=True)]

    def spoil(self, tensor):
        """NaN in the rows of no group: nothing may depend on them."""
        nan = torch.full([], float("nan"), device=DEVICE).to(tensor.dtype)
        for rows in self.others_of(tensor):
            rows.copy_(nan.expand(rows.shape))
        return tensor

    def numbers(self):
        """The tensor of offsets or counts."""
        sizes = torch.tensor(self.sizes, dtype=torch.int32, device=DEVICE)
        return sizes if self.by == "counts" else sizes.cumsum(0).to(torch.int32)

    def inputs(self):
        """a, and b as it is multiplied, [groups, k, n]."""
        a = filled("guarded", randn([*self.lead(), self.k], INPUT_DTYPES[self.dtype], 1))
        shape = [self.groups, self.n, self.k]
        if self.layout_b == "n":
            shape = [self.groups, self.k, self.n]
        scale = max(self.k, 1) ** -0.5
        b = filled("guarded", randn(shape, INPUT_DTYPES[self.dtype], 2, scale))
        return self.spoil(a), b.mT if self.layout_b == "t" else b

    def columns(self):
        return self.n // 2 if self.activation in GATED else self.n

    def _scales(self):
        if not self.scales:
            return {}
        generator = torch.Generator(device=DEVICE).manual_seed(5)

        def values(*shape):
            return torch.rand(shape, device=DEVICE, generator=generator) + 0.25

        if self.scales == "vectors":
            rows = values(*self.lead(), 1)
            scale_a = self.spoil(rows) if self.by == "counts" else self.spoil(rows)[:, 0]
            return dict(scale_a=scale_a, scale_b=values(self.groups, 1, self.n))
        entries = self.n if self.scales == "columns" else blocks_of(self.n)
        scale_a = self.spoil(values(*self.lead(), blocks_of(self.k)))
        return dict(scale_a=scale_a, scale_b=values(self.groups, blocks_of(self.k), entries))

    def options(self):
        options = dict(activation=self.activation, alpha=self.alpha) | self._scales()
        options["accumulator"] = self.accumulator
        if self.gate:
            options["gate"] = self.gate
        if self.bias:
            shape = {"groups": [self.groups, self.n], "all": [self.n],
                     "batch": [self.groups, 1, self.n]}[self.bias_form]  # fmt: skip
            options["bias"] = randn(shape, DTYPES[self.bias], 3)
        if self.residual:
            values = randn([*self.lead(), self.columns()], DTYPES[self.residual], 4)
            options["residual"] = self.spoil(filled(self.out_storage, values))
        return options

    def call_options(self):
        options = self.options() | {self.by: self.numbers(), "expected_rows": self.expected_rows}
        if self.dtype == "f32":
            options["precision"] = "tf32"
        if self.config:
            options["config"] = self.config
        return options

    def output(self):
        default = "bf16" if self.dtype in F8_DTYPES else self.dtype
        shape = [*self.lead(), self.columns()]
        return place(self.out_storage, shape, DTYPES[self.out_dtype or default])

    def explain(self):
        a, b = self.inputs()
        return kiln.explain("gemm", a, b, out=self.output().view, **self.call_options())

    def run(self):
        a, b = self.inputs()
        jit.gemm(a, b, out=self.output().view, **self.call_options())

    def check(self):
        a, b = self.inputs()
        out = self.output()
        options = self.call_options()
        for rows in self.others_of(out.view):
            rows.fill_(UNTOUCHED)  # a's rows of no group are NaN, and so would be their results
        jit.gemm(a, b, out=out.view, **options)
        out.check_untouched(str(self))
        for rows in self.others_of(out.view):
            assert (rows == UNTOUCHED).all(), f"{self}: wrote rows of no group"
        for group, (rows, own) in enumerate(
            zip(self.rows_of(a), self.rows_of(out.view), strict=True)
        ):
            self._judge(group, rows, b[group], own)
        again = self.output()
        jit.gemm(a, b, out=again.view, **options)
        for first, second in zip(self.rows_of(out.view), self.rows_of(again.view), strict=True):
            assert torch.equal(first, second), f"{self}: another result the second time"

    def _judge(self, group, a, b, out):
        options = self.options()
        options.pop("accumulator")
        for name in ("bias", "scale_b"):
            if name in options and options[name].dim() > 1:
                options[name] = options[name][group]
        for name in ("residual", "scale_a"):
            if name in options:
                options[name] = self.rows_of(options[name])[group]
        gate = ROW_GATES[out.dtype]
        if self.dtype in F8_DTYPES:
            gate = f8_gate(out.dtype, "")
        if self.scales in ("blocks", "columns"):
            a, b = self._unscaled(a, b, options)
        elif self.scales == "vectors":
            options["scale_a"] = options["scale_a"].reshape(-1, 1)
        expected = gemm(a, b, **options)
        baseline = gemm_baseline(a, b, out_dtype=out.dtype, **options)
        check_rows(out, expected, baseline, what=f"{self}, group {group}", gate=gate)

    def _unscaled(self, a, b, options):
        """The operands times their scales of blocks, in float64."""
        scale_a, scale_b = options.pop("scale_a"), options.pop("scale_b")
        if self.scales == "blocks":
            scale_b = scale_b.repeat_interleave(128, -1)[:, : self.n]
        wide_a = a.double() * scale_a.double().repeat_interleave(128, -1)[:, : self.k]
        wide_b = b.double() * scale_b.double().repeat_interleave(128, 0)[: self.k]
        return wide_a, wide_b
