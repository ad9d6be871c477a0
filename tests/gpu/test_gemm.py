"""GEMM over dtypes, layouts, sizes, alignments, batches, epilogues and tiles, against float64."""

import kiln
import pytest
import torch
from gemm_case import GemmCase, GemmGroup, judge, tiles
from kiln import jit
from storage import DEVICE, DTYPES, place, randn

pytestmark = pytest.mark.usefixtures("compiled")

LAYOUTS = ["nn", "nt", "tn", "tt"]
SIZES = [
    (128, 128, 128),
    (256, 384, 512),
    (129, 127, 65),
    (1, 1, 1),
    (1, 300, 77),
    (300, 1, 77),
    (33, 65, 1),
    (17, 1000, 333),
    (1000, 24, 8),
    (513, 257, 1031),
]


@pytest.mark.parametrize(
    "group",
    [
        GemmGroup(
            f"{dtype}-{layout}",
            tuple(GemmCase(dtype=dtype, layout=layout, m=m, n=n, k=k) for m, n, k in SIZES),
        )
        for dtype in DTYPES
        for layout in LAYOUTS
    ],
    ids=str,
)
def test_layouts_and_sizes(group):
    group.check()


@pytest.mark.parametrize("m,n,k", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0), (1, 1, 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes_of_zero(dtype, m, n, k):
    GemmCase(dtype=dtype, m=m, n=n, k=k, bias="f32", activation="silu").check()


@pytest.mark.parametrize(
    "group",
    [
        GemmGroup(
            f"{dtype}-{layout}-{storage}",
            tuple(
                GemmCase(dtype=dtype, layout=layout, storage=storage, out_storage=out,
                         m=m, n=n, k=k)
                for out in ("guarded", "odd", "offset")
                for m, n, k in [(128, 128, 64), (131, 67, 45)]
            ),
        )
        for dtype in DTYPES
        for layout in LAYOUTS
        for storage in ("guarded", "odd", "offset")
    ],
    ids=str,
)  # fmt: skip
def test_alignments_and_strides(group):
    group.check()


BATCHES = [(3, 3), (3, 0), (0, 3), (1, 3), (3, 1), (1, 1), (1, 0)]


@pytest.mark.parametrize(
    "group",
    [
        GemmGroup(
            f"{dtype}-{layout}",
            tuple(
                GemmCase(dtype=dtype, layout=layout, m=70, n=130, k=96, batch_a=a, batch_b=b,
                         bias="f32", residual=dtype)
                for a, b in BATCHES
            ),
        )
        for dtype in DTYPES
        for layout in LAYOUTS
    ],
    ids=str,
)  # fmt: skip
def test_batches_and_broadcasts(group):
    group.check()


def test_a_batch_expanded_with_stride_zero():
    a = randn([1, 60, 64], torch.bfloat16, 1).expand(4, 60, 64)
    b = randn([4, 64, 72], torch.bfloat16, 2, 0.125)
    out = place("guarded", [4, 60, 72], torch.bfloat16)
    jit.gemm(a, b, out=out.view)
    judge("expanded batch", a, b, out)


def test_a_bias_per_batch_entry():
    a, b = GemmCase(batch_a=3, batch_b=3, m=50, n=72, k=64).inputs()
    bias = randn([3, 1, 72], torch.float32, 3)
    out = place("guarded", [3, 50, 72], torch.bfloat16)
    jit.gemm(a, b, out=out.view, bias=bias)
    judge("bias per batch entry", a, b, out, bias=bias)


ACTIVATIONS = [None, "relu", "gelu", "gelu_tanh", "silu"]


@pytest.mark.parametrize(
    "group",
    [
        GemmGroup(
            f"{dtype}-{activation}",
            tuple(
                GemmCase(dtype=dtype, activation=activation, bias=bias, residual=residual,
                         m=m, n=130, k=200, alpha=alpha)
                for bias, residual, alpha in [("", "", 1.0), (dtype, "", -2.5), ("f32", dtype, 0.5)]
                for m in (7, 150)
            ),
        )
        for dtype in DTYPES
        for activation in ACTIVATIONS
    ],
    ids=str,
)  # fmt: skip
def test_epilogues(group):
    group.check()


@pytest.mark.parametrize(
    "group",
    [
        GemmGroup(
            f"{dtype}-to-{out}",
            tuple(
                GemmCase(dtype=dtype, out_dtype=out, residual=residual, m=100, n=97, k=130)
                for residual in ("", "f32", "bf16")
            ),
        )
        for dtype in DTYPES
        for out in DTYPES
    ],
    ids=str,
)
def test_output_dtypes(group):
    group.check()


@pytest.mark.parametrize("alpha", [0.0, -1.0, 3.25])
def test_alpha(alpha):
    GemmCase(alpha=alpha, m=65, n=66, k=67).check()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_accumulation(layout):
    for m, n, k in [(128, 128, 64), (129, 67, 300)]:
        GemmCase(dtype="f16", layout=layout, m=m, n=n, k=k, accumulator="float16").check()


def test_an_epilogue_expression():
    a, b = GemmCase(m=90, n=77, k=128).inputs()
    bias, residual = randn([77], torch.float32, 3), randn([90, 77], torch.bfloat16, 4)
    out = place("guarded", [90, 77], torch.bfloat16)
    jit.gemm(a, b, out=out.view, bias=bias, residual=residual, alpha=0.5,
             epilogue="(acc > 0.0f ? acc : 0.1f * acc) * bias + residual + 0.01f * (row - col)",
             )  # fmt: skip
    row, col = torch.arange(90, device=DEVICE)[:, None], torch.arange(77, device=DEVICE)[None]

    def leaky(acc, bias, residual):
        return torch.where(acc > 0, acc, 0.1 * acc) * bias + residual + 0.01 * (row - col)

    judge("expression", a, b, out, bias=bias, residual=residual, alpha=0.5, epilogue=leaky)


def test_a_broken_epilogue_points_to_the_users_text():
    a, b = GemmCase().inputs()
    with pytest.raises(kiln.CompileError) as caught:
        jit.gemm(a, b, epilogue="acc + no_such_name")
    assert "no_such_name" in str(caught.value) and "epilogue" in str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_tile_of_the_table_by_config(dtype):
    rows = tiles(dtype, "sm_{}{}".format(*torch.cuda.get_device_capability()))
    assert len(rows) >= 3
    for row in rows:
        for m, n, k in [(300, 301, 303), (16, 512, 64)]:
            GemmCase(dtype=dtype, storage="guarded", m=m, n=n, k=k, config=row).check()


def test_a_tile_that_is_no_row_is_refused():
    a, b = GemmCase().inputs()
    with pytest.raises(ValueError, match="config"):
        jit.gemm(a, b, config=(48, 48, 48, 1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shorthand_is_the_same_kernel_as_the_view(layout):
    case = GemmCase(layout=layout, m=100, n=72, k=64)
    by_view = case.check()
    before = kiln.stats()["misses"]
    shorthand = GemmCase(layout=layout, m=100, n=72, k=64, shorthand=True)
    assert torch.equal(shorthand.check(), by_view)
    assert kiln.stats()["misses"] == before


def test_a_fresh_output_has_the_inputs_dtype_or_the_one_asked_for():
    a, b = GemmCase(m=33, n=34, k=35).inputs()
    out = jit.gemm(a, b)
    assert out.shape == (33, 34) and out.dtype == torch.bfloat16 and out.device == a.device
    wide = jit.gemm(a, b, out_dtype=torch.float32)
    assert wide.dtype == torch.float32
    assert torch.equal(jit.gemm(a, b, out_dtype="float32"), wide)


def test_repeats_are_bit_identical():
    a, b = GemmCase(m=1000, n=1000, k=2000).inputs()
    first = jit.gemm(a, b)
    for _ in range(20):
        assert torch.equal(jit.gemm(a, b), first)


@pytest.mark.slow
def test_offsets_beyond_31_bits():
    if torch.cuda.mem_get_info()[0] < 8 << 30:
        pytest.skip("needs 8 GB of free device memory")
    rows, stride = 70_000, 32_768
    buffer = torch.empty(rows * stride, dtype=torch.bfloat16, device=DEVICE)
    a, out = (buffer.as_strided([rows, 64], [stride, 1], 64 * i) for i in range(2))
    a.copy_(randn([rows, 64], torch.bfloat16, 1))
    b = randn([64, 64], torch.bfloat16, 2, 0.125)
    jit.gemm(a, b, out=out)
    assert torch.equal(out, jit.gemm(a.contiguous(), b))
    del buffer, a, out
    torch.cuda.empty_cache()
