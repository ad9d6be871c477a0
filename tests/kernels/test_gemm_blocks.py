"""GEMM of 8-bit floats with scales of blocks: one for each row of a and 128 of K, and one for each
column of b, or for 128 of them, and 128 of K."""

import dataclasses

import grid
import kiln
import pytest
import torch
from case_group import CaseGroup
from compare import check_rows, f8_gate
from gemm_case import GemmCase, tiles
from kiln import jit
from storage import DEVICE, DTYPES, F8_DTYPES, filled, place, randn

pytestmark = [
    pytest.mark.skipif(
        grid.arch() not in ("sm_90", "sm_90a"), reason="needs compute capability 9.0"
    ),
    pytest.mark.usefixtures("compiled", "device"),
]

E4M3 = F8_DTYPES["e4m3"]


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
class BlockCase:
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

    def __str__(self):
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != getattr(BlockCase(), f.name)
        ]
        return "-".join(changed).replace(" ", "") or "default"

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


BASE = BlockCase()


def groups():
    for columns in (False, True):
        case = dataclasses.replace(BASE, columns=columns)
        name = "columns" if columns else "blocks"
        sizes = [(70, 200, 300), (1, 8, 16), (3, 1, 129), (129, 130, 513), (33, 264, 128)]
        yield CaseGroup(name, tuple(dataclasses.replace(case, m=m, n=n, k=k) for m, n, k in sizes))
        other = [
            dict(contiguous="m"),
            dict(contiguous="m", peak=True),
            dict(peak=True),
            dict(trans_b=True),
            dict(batch=3, m=20, n=150, k=200),
            dict(batch=2, m=20, n=150, k=200, contiguous="m", trans_b=True),
        ]
        yield CaseGroup(f"{name}-layouts", tuple(dataclasses.replace(case, **x) for x in other))
    yield CaseGroup("mixed", (dataclasses.replace(BASE, dtype_b="e5m2", out_dtype="f16"),))
    full = dict(bias="f32", residual="bf16", activation="silu", alpha=0.5, out_storage="odd")
    yield CaseGroup("epilogue", (dataclasses.replace(BASE, **full),))
    upright = dict(m=150, n=400, config=(128, 192, 128, 4), residual="bf16")
    yield CaseGroup("residual", (dataclasses.replace(BASE, **upright),))


def tile_groups():
    for columns, form in ((False, "blocks"), (True, "groups")):
        for config in tiles("float8_e4m3fn", "sm_90a", scale_a="groups", scale_b=form):
            # Several tiles that begin in the middle of a block, rings that turn over, and as many
            # K-tiles as a cluster may share.
            case = BlockCase(m=config[0] + 5, n=2 * config[1] + 3, k=6 * 128 + 7, columns=columns,
                             out_dtype="f32" if columns else "bf16", config=config)  # fmt: skip
            if columns:  # the kernels that the samples have
                case = dataclasses.replace(case, bias="f32", residual="bf16", out_storage="odd")
            yield CaseGroup(f"{form}-" + "x".join(map(str, config)), (case,))


@pytest.mark.parametrize("group", [*groups(), *grid.some_of(tile_groups(), of=2)], ids=str)
def test_scales_of_blocks(group):
    group.check()


def test_ones_are_the_plain_product():
    """Factors of one add nothing; sums of 2^14 and more do not fit into what tensor cores keep."""
    k = 20000
    a, w = (torch.ones([rows, k], device=DEVICE).to(E4M3) for rows in (40, 72))
    scale_a, scale_b = (torch.ones([rows, blocks_of(k)], device=DEVICE) for rows in (40, 1))
    out = jit.gemm(a, w.t(), scale_a=scale_a, scale_b=scale_b.t(), out_dtype=torch.float32)
    assert (out == k).all()


def test_each_block_has_a_factor_of_its_own():
    """A single element of each row and column of blocks, times powers of two: exact."""
    m, n, k = 20, 600, 640
    a, w = (torch.zeros([rows, k], device=DEVICE) for rows in (m, n))
    a[:, ::128], w[:, ::128] = 1, 1
    scale_a = 2.0 ** (torch.arange(m, device=DEVICE) % 5)[:, None].float().expand(m, 5)
    exponents = torch.arange(5, device=DEVICE)[None] + 3 * torch.arange(5, device=DEVICE)[:, None]
    scale_b = 2.0 ** exponents.float()
    out = jit.gemm(a.to(E4M3), w.to(E4M3), trans_b=True, scale_a=scale_a, scale_b=scale_b,
                   out_dtype="float32")  # fmt: skip
    expected = scale_a[:, :1] * scale_b.sum(1).repeat_interleave(128)[None, :n]
    assert torch.equal(out, expected)


def test_the_spec_of_a_call_names_its_kernel():
    spec = BASE.explain()["spec"]
    assert (spec["scale_a"], spec["scale_b"]) == ("groups", "blocks")
    assert kiln.prewarm(spec, "sm_90a", check=True)["total"] == 1


REFUSALS = {
    "one": (dict(scale_b=None), ValueError,
            "scale_b must have shape [3, 200] (one for each column of b and 128 of K) or [3, 2] "
            "(one for each 128 x 128 of b), as scale_a has one for each 128 of K, got none"),
    "orientation": (dict(scale_b=torch.ones([2, 3])), ValueError,
                    "got [2, 3]; it is laid out as b is passed"),
    "fast": (dict(precision="fast"), ValueError,
             'precision "fast" cannot be combined with scales of blocks'),
    "gated": (dict(activation="swiglu"), ValueError,
              "activation cannot be gated where the scales are of blocks"),
    "dtype": (dict(scale_b=torch.ones([3, 2], dtype=torch.bfloat16)), TypeError,
              "scale_b must be float32, got bfloat16"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused(name):
    changes, error, text = REFUSALS[name]
    a, w, scale_a, scale_b = BASE.inputs()
    options = dict(scale_a=scale_a, scale_b=scale_b.t()) | changes
    if torch.is_tensor(options["scale_b"]):
        options["scale_b"] = options["scale_b"].to(DEVICE)
    with pytest.raises(error) as caught:
        jit.gemm(a, w.t(), **options)
    assert text in str(caught.value)


@pytest.mark.cuda
@pytest.mark.parametrize("m,n,k", [(4096, 7168, 2048), (1000, 2112, 7168), (64, 7168, 16384)])
@pytest.mark.parametrize("columns", [False, True])
def test_large_problems(m, n, k, columns):
    case = dataclasses.replace(BASE, m=m, n=n, k=k, columns=columns, contiguous="m")
    case.check()
    operands, options = case.arguments()
    out = jit.gemm(*operands, **options)
    for _ in range(10):
        assert torch.equal(jit.gemm(*operands, **options), out)
