"""One GEMM call: its inputs, the call itself and the judgement."""

from __future__ import annotations

import dataclasses

import kiln
import torch
from compare import HALF_SUM_GATE, check_rows, f8_gate
from kiln import jit
from named_case import NamedCase
from reference import GATED, gemm, gemm_baseline
from storage import DEVICE, DTYPES, F8_DTYPES, INPUT_DTYPES, filled, place, randn


def tiles(dtype, arch, **properties):
    """Every row of the config table for a dtype, as a config that names it; with properties, those
    that serve them. Rows whose CTAs share K do so by threes. Scales of blocks have rows of their
    own, which only those who ask for such scales get."""
    name = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}.get(dtype, dtype)
    found = set()
    for spec in kiln.enumerate_specs(arch):
        wanted = {"op": "gemm", "dtype": name, **properties}
        if any(spec.get(key) != value for key, value in wanted.items()):
            continue
        if spec["scale_a"] == "groups" and "scale_a" not in properties:
            continue
        if spec["grouping"] != properties.get("grouping", "none"):
            continue
        tile = tuple(spec[key] for key in ("block_m", "block_n", "block_k", "stages"))
        if spec["cluster"]:
            tile += (spec["cluster"], *((3,) if spec["splits"] else ()))
        found.add(tile)
    return sorted(found)


@dataclasses.dataclass(frozen=True)
class GemmCase(NamedCase):
    dtype: str = "bf16"
    dtype_b: str = ""  # "" = dtype
    out_dtype: str = ""  # "" = dtype, bf16 for 8-bit floats
    layout: str = "nt"  # n: rows contiguous as used; t: the transposed view of contiguous rows
    m: int = 128
    n: int = 128
    k: int = 128
    batch_a: int = 0  # 0 = two-dimensional
    batch_b: int = 0
    storage: str = "plain"  # of a and b
    out_storage: str = "guarded"
    activation: str | None = None
    gate: str = ""  # of a gated activation, "" = the default; n counts columns of b
    bias: str = ""  # a dtype
    residual: str = ""  # a dtype
    scale_a: str = ""  # a form: scalar, tensor, vector, matrix or batch
    scale_b: str = ""
    precision: str = ""  # fast: of 8-bit floats
    alpha: float = 1.0
    accumulator: str = "float32"
    config: tuple | None = None
    shorthand: bool = False  # trans_a, trans_b instead of transposed views

    @property
    def batch(self):
        return max(self.batch_a, self.batch_b)

    def inputs(self, seed=0):
        """a and b as they are multiplied: [.., m, k] and [.., k, n]."""
        scale = self.k**-0.5 if self.k else 1.0
        a = self._input(self.dtype, self.batch_a, self.m, self.k, self.layout[0], seed + 1)
        b = self._input(
            self.dtype_b or self.dtype,
            self.batch_b,
            self.k,
            self.n,
            self.layout[1],
            seed + 2,
            scale,
        )
        return a, b

    def _input(self, dtype, batch, rows, columns, order, seed, scale=1.0):
        shape = [rows, columns] if order == "n" else [columns, rows]
        shape = [batch, *shape] if batch else shape
        x = filled(self.storage, randn(shape, INPUT_DTYPES[dtype], seed, scale))
        return x if order == "n" else x.mT

    def out_shape(self):
        n = self.n // 2 if self.activation in GATED else self.n
        return [self.batch, self.m, n] if self.batch else [self.m, n]

    def output(self):
        default = "bf16" if self.dtype in F8_DTYPES else self.dtype
        return place(self.out_storage, self.out_shape(), DTYPES[self.out_dtype or default])

    def epilogue(self):
        """Keyword arguments of both the library and the reference."""
        options = dict(activation=self.activation, alpha=self.alpha)
        if self.gate:
            options["gate"] = self.gate
        if self.bias:
            options["bias"] = randn([self.n], DTYPES[self.bias], 3)
        if self.residual:
            residual = randn(self.out_shape(), DTYPES[self.residual], 4)
            options["residual"] = filled(self.out_storage, residual)
        if self.scale_a:
            options["scale_a"] = self._scale(self.scale_a, self.m, [self.m, 1], 5)
        if self.scale_b:
            options["scale_b"] = self._scale(self.scale_b, self.n, [1, self.n], 6)
        return options

    def _scale(self, form, size, matrix, seed):
        shapes = {"scalar": [], "tensor": [1], "vector": [size], "matrix": matrix,
                  "batch": [self.batch, *matrix]}  # fmt: skip
        generator = torch.Generator(device=DEVICE).manual_seed(seed)
        return torch.rand(shapes[form], device=DEVICE, generator=generator) + 0.25

    def call(self, a, b, out, **options):
        if self.shorthand:
            options |= dict(trans_a=self.layout[0] == "t", trans_b=self.layout[1] == "t")
            a = a.mT if self.layout[0] == "t" else a
            b = b.mT if self.layout[1] == "t" else b
        return jit.gemm(a, b, out=out, **self._fixed_options(), **options)

    def explain(self):
        """What the call would run: kiln.explain's answer."""
        a, b = self.inputs()
        options = self._fixed_options() | self.epilogue()
        return kiln.explain("gemm", a, b, out=self.output().view, **options)

    def _fixed_options(self):
        options = dict(accumulator=self.accumulator)
        if self.dtype == "f32":
            options["precision"] = "tf32"
        if self.precision:
            options["precision"] = self.precision
        if self.config:
            options["config"] = self.config
        return options

    def run(self):
        a, b = self.inputs()
        self.call(a, b, self.output().view, **self.epilogue())

    def check(self):
        a, b = self.inputs()
        out = self.output()
        options = self.epilogue()
        self.call(a, b, out.view, **options)
        limit = HALF_SUM_GATE if self.accumulator == "float16" else None
        if self.dtype in F8_DTYPES:
            limit = f8_gate(out.view.dtype, self.precision)
        judge(str(self), a, b, out, limit=limit, accumulator=self.accumulator, **options)
        return out.view


def judge(what, a, b, out, *, limit=None, accumulator="float32", **options):
    """`out` (a Placed) against float64, excusing twice what a careful kernel loses. `limit`: the
    gate of compare.py, if it is another than the usual one."""
    expected = gemm(a, b, **options)
    baseline = gemm_baseline(a, b, out_dtype=out.view.dtype, accumulator=accumulator, **options)
    check_rows(out.view, expected, baseline, what=what, gate=limit)
    out.check_untouched(what)
