"""GEMM on the emulated device in small sizes: the public API on CPU tensors and NumPy arrays, in
every order of asynchronous work, warps and blocks, against float64."""

import itertools

import kiln
import numpy as np
import pytest
import torch
from conftest import ARCH
from gemm_case import GemmCase, GemmGroup, judge, tiles
from kiln import jit
from storage import DTYPES, place, randn

pytestmark = pytest.mark.usefixtures("compiled", "order")

LAYOUTS = ["nn", "nt", "tn", "tt"]
SIZES = [(64, 64, 64), (129, 67, 45), (1, 1, 1), (1, 100, 77), (100, 1, 77), (33, 65, 1),
         (17, 201, 133), (90, 24, 8)]  # fmt: skip


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
def test_sizes_of_zero(m, n, k):
    GemmCase(m=m, n=n, k=k, bias="f32", activation="silu").check()


@pytest.mark.parametrize(
    "group",
    [
        GemmGroup(
            f"{dtype}-{layout}-{storage}",
            tuple(
                GemmCase(dtype=dtype, layout=layout, storage=storage, out_storage=out,
                         m=m, n=n, k=k)
                for out in ("guarded", "odd")
                for m, n, k in [(32, 32, 64), (37, 67, 45)]
            ),
        )
        for dtype, layout in zip([*DTYPES, "f16"], LAYOUTS)
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
                GemmCase(dtype=dtype, layout=layout, m=20, n=50, k=40, batch_a=a, batch_b=b,
                         bias="f32", residual=dtype)
                for a, b in BATCHES
            ),
        )
        for dtype, layout in zip([*DTYPES, "bf16"], LAYOUTS)
    ],
    ids=str,
)  # fmt: skip
def test_batches_and_broadcasts(group):
    group.check()


def test_a_batch_expanded_with_stride_zero():
    a = randn([1, 30, 64], torch.bfloat16, 1).expand(4, 30, 64)
    b = randn([4, 64, 40], torch.bfloat16, 2, 0.125)
    out = place("guarded", [4, 30, 40], torch.bfloat16)
    jit.gemm(a, b, out=out.view)
    judge("expanded batch", a, b, out)


@pytest.mark.parametrize(
    "group",
    [
        GemmGroup(
            f"{dtype}-{activation}",
            tuple(
                GemmCase(dtype=dtype, activation=activation, bias=bias, residual=residual,
                         m=m, n=50, k=60, alpha=alpha)
                for bias, residual, alpha in [("", "", 1.0), (dtype, "", -2.5), ("f32", dtype, 0.5)]
                for m in (7, 50)
            ),
        )
        for dtype, activation in [("f16", None), ("bf16", "relu"), ("f32", "gelu"),
                                  ("f16", "gelu_tanh"), ("bf16", "silu")]
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
                GemmCase(dtype=dtype, out_dtype=out, residual=residual, m=40, n=37, k=50)
                for residual in ("", "bf16")
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
    GemmCase(alpha=alpha, m=35, n=36, k=37).check()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_accumulation(layout):
    for m, n, k in [(64, 64, 64), (49, 67, 200)]:
        GemmCase(dtype="f16", layout=layout, m=m, n=n, k=k, accumulator="float16").check()


def test_an_epilogue_expression():
    a, b = GemmCase(m=50, n=37, k=64).inputs()
    bias, residual = randn([37], torch.float32, 3), randn([50, 37], torch.bfloat16, 4)
    out = place("guarded", [50, 37], torch.bfloat16)
    jit.gemm(a, b, out=out.view, bias=bias, residual=residual, alpha=0.5,
             epilogue="(acc > 0.0f ? acc : 0.1f * acc) * bias + residual + 0.01f * (row - col)",
             )  # fmt: skip
    row, col = torch.arange(50)[:, None], torch.arange(37)[None]

    def leaky(acc, bias, residual):
        return torch.where(acc > 0, acc, 0.1 * acc) * bias + residual + 0.01 * (row - col)

    judge("expression", a, b, out, bias=bias, residual=residual, alpha=0.5, epilogue=leaky)


@pytest.mark.parametrize(
    "group",
    [
        GemmGroup(
            f"{dtype}-{'x'.join(map(str, row))}",
            (
                GemmCase(
                    dtype=dtype,
                    storage="guarded",
                    m=row[0] + 5,
                    n=row[1] + 3,
                    k=3 * row[2] + 7,
                    config=row,
                ),
                GemmCase(dtype=dtype, m=16, n=72, k=64, config=row),
            ),
        )
        for dtype in DTYPES
        for row in tiles(dtype, ARCH.split(":")[1])
    ],
    ids=str,
)
def test_every_tile_of_the_table_by_config(group):
    group.check()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shorthand_is_the_same_as_the_view(layout):
    by_view = GemmCase(layout=layout, m=40, n=72, k=64).check()
    shorthand = GemmCase(layout=layout, m=40, n=72, k=64, shorthand=True)
    assert torch.equal(shorthand.check(), by_view)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_numpy_arrays(dtype):
    options = {"precision": "tf32"} if dtype == "f32" else {}
    a, b = GemmCase(dtype=dtype, layout="nn", m=45, n=30, k=70).inputs()
    out = place("guarded", [45, 30], DTYPES[dtype])
    view = out.view.numpy()
    jit.gemm(a.numpy(), b.numpy(), out=view, **options)
    judge("NumPy", a, b, out)
    fresh = jit.gemm(a.numpy(), b.numpy(), **options)
    assert type(fresh) is np.ndarray and np.array_equal(fresh, view)
    assert np.array_equal(jit.gemm(a.numpy(), np.asfortranarray(b.numpy()), **options), view)


def test_every_order_gives_the_same_bits():
    case = GemmCase(m=150, n=140, k=300, bias="f32", activation="silu")
    results = []
    for schedule, seed in itertools.product(("late", "eager"), (0, 1, 2, 12345)):
        with kiln.device(ARCH, schedule=schedule, seed=seed):
            results.append(case.check())
    assert all(torch.equal(out, results[0]) for out in results)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_every_modelled_architecture(arch):
    with kiln.device(f"emulator:{arch}"):
        for dtype in DTYPES:
            GemmCase(dtype=dtype, m=50, n=60, k=70).check()
