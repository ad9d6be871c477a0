"""GEMM over dtypes, layouts, sizes, alignments, batches, epilogues and tiles, against float64."""

import dataclasses

import kiln
import numpy as np
import pytest
import torch
from case_group import CaseGroup
from gemm_case import GemmCase, judge, tiles
from grid import arch, sized, some_of
from kiln import jit
from storage import DEVICE, DTYPES, place, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

LAYOUTS = ["nn", "nt", "tn", "tt"]
# Small, a dtype has one of the layouts in most tests.
EVERY_KIND = [(dtype, layout) for dtype in DTYPES for layout in LAYOUTS]
SIZES = sized(
    small=[
        (64, 64, 64), (129, 67, 45), (1, 1, 1), (1, 100, 77), (100, 1, 77), (33, 65, 1),
        (17, 201, 133), (90, 24, 8),
    ],
    full=[
        (128, 128, 128), (256, 384, 512), (129, 127, 65), (1, 1, 1), (1, 300, 77), (300, 1, 77),
        (33, 65, 1), (17, 1000, 333), (1000, 24, 8), (513, 257, 1031),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"{dtype}-{layout}",
            tuple(GemmCase(dtype=dtype, layout=layout, m=m, n=n, k=k) for m, n, k in SIZES),
        )
        for dtype, layout in EVERY_KIND
    ],
    ids=str,
)
def test_layouts_and_sizes(group):
    group.check()


@pytest.mark.parametrize("m,n,k", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0), (1, 1, 0)])
@pytest.mark.parametrize("dtype", sized(small=["bf16"], full=list(DTYPES)))
def test_sizes_of_zero(dtype, m, n, k):
    GemmCase(dtype=dtype, m=m, n=n, k=k, bias="f32", activation="silu").check()


def alignment_groups():
    some = zip([*DTYPES, "f16"], LAYOUTS)
    outputs = sized(small=("guarded", "odd"), full=("guarded", "odd", "offset"))
    sizes = sized(small=[(32, 32, 64), (37, 67, 45)], full=[(128, 128, 64), (131, 67, 45)])
    for dtype, layout in sized(small=list(some), full=EVERY_KIND):
        for storage in ("guarded", "odd", "offset"):
            cases = tuple(
                GemmCase(dtype=dtype, layout=layout, storage=storage, out_storage=out, m=m, n=n,
                         k=k)
                for out in outputs
                for m, n, k in sizes
            )  # fmt: skip
            yield CaseGroup(f"{dtype}-{layout}-{storage}", cases)


@pytest.mark.parametrize("group", list(alignment_groups()), ids=str)
def test_alignments_and_strides(group):
    group.check()


BATCHES = [(3, 3), (3, 0), (0, 3), (1, 3), (3, 1), (1, 1), (1, 0)]


def batch_groups():
    some = zip([*DTYPES, "bf16"], LAYOUTS)
    size = sized(small=dict(m=20, n=50, k=40), full=dict(m=70, n=130, k=96))
    for dtype, layout in sized(small=list(some), full=EVERY_KIND):
        cases = tuple(
            GemmCase(dtype=dtype, layout=layout, batch_a=a, batch_b=b, bias="f32", residual=dtype,
                     **size)
            for a, b in BATCHES
        )  # fmt: skip
        yield CaseGroup(f"{dtype}-{layout}", cases)


@pytest.mark.parametrize("group", list(batch_groups()), ids=str)
def test_batches_and_broadcasts(group):
    group.check()


def test_a_batch_expanded_with_stride_zero():
    rows, columns = sized(small=(30, 40), full=(60, 72))
    a = randn([1, rows, 64], torch.bfloat16, 1).expand(4, rows, 64)
    b = randn([4, 64, columns], torch.bfloat16, 2, 0.125)
    out = place("guarded", [4, rows, columns], torch.bfloat16)
    jit.gemm(a, b, out=out.view)
    judge("expanded batch", a, b, out)


def test_a_bias_per_batch_entry():
    a, b = GemmCase(batch_a=3, batch_b=3, m=50, n=72, k=64).inputs()
    bias = randn([3, 1, 72], torch.float32, 3)
    out = place("guarded", [3, 50, 72], torch.bfloat16)
    jit.gemm(a, b, out=out.view, bias=bias)
    judge("bias per batch entry", a, b, out, bias=bias)


ACTIVATIONS = [None, "relu", "gelu", "gelu_tanh", "silu"]


def epilogue_groups():
    some = zip(["f16", "bf16", "f32", "f16", "bf16"], ACTIVATIONS)
    every = [(dtype, activation) for dtype in DTYPES for activation in ACTIVATIONS]
    rows, n, k = sized(small=((7, 50), 50, 60), full=((7, 150), 130, 200))
    for dtype, activation in sized(small=list(some), full=every):
        cases = tuple(
            GemmCase(dtype=dtype, activation=activation, bias=bias, residual=residual, m=m, n=n,
                     k=k, alpha=alpha)
            for bias, residual, alpha in [("", "", 1.0), (dtype, "", -2.5), ("f32", dtype, 0.5)]
            for m in rows
        )  # fmt: skip
        # A lane of this portable tile reads several vectors of the residual.
        tile = (64, 64, 32 if dtype == "f32" else 64, 6)
        aligned = GemmCase(dtype=dtype, activation=activation, residual=dtype, storage="odd",
                           m=70, n=72, k=k, config=tile)  # fmt: skip
        yield CaseGroup(f"{dtype}-{activation}", (*cases, aligned))


@pytest.mark.parametrize("group", list(epilogue_groups()), ids=str)
def test_epilogues(group):
    group.check()


def output_groups():
    size = sized(small=dict(m=40, n=37, k=50), full=dict(m=100, n=97, k=130))
    for dtype in DTYPES:
        for out in DTYPES:
            cases = tuple(
                GemmCase(dtype=dtype, out_dtype=out, residual=residual, **size)
                for residual in sized(small=("", "bf16"), full=("", "f32", "bf16"))
            )
            yield CaseGroup(f"{dtype}-to-{out}", cases)


@pytest.mark.parametrize("group", list(output_groups()), ids=str)
def test_output_dtypes(group):
    group.check()


@pytest.mark.parametrize("alpha", [0.0, -1.0, 3.25])
def test_alpha(alpha):
    m, n, k = sized(small=(35, 36, 37), full=(65, 66, 67))
    GemmCase(alpha=alpha, m=m, n=n, k=k).check()


HALF_SIZES = sized(small=[(64, 64, 64), (49, 67, 200)], full=[(128, 128, 64), (129, 67, 300)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_accumulation(layout):
    for m, n, k in HALF_SIZES:
        GemmCase(dtype="f16", layout=layout, m=m, n=n, k=k, accumulator="float16").check()


@pytest.mark.parametrize("storage", ["plain", "odd"])
@pytest.mark.parametrize("m, n, k", [(16, 64, 700), (150, 264, 64), (1, 40, 2048)])
def test_the_residual_may_be_replaced(storage, m, n, k):
    """By tiles, by CTAs that share K, and transposed; read by boxes and element by element."""
    case = GemmCase(m=m, n=n, k=k, storage=storage, residual="bf16")
    a, b = case.inputs()
    residual = place(storage, [m, n], torch.bfloat16).view
    residual.copy_(randn([m, n], torch.bfloat16, 4))
    expected = jit.gemm(a, b, residual=residual, activation="relu")
    assert jit.gemm(a, b, residual=residual, activation="relu", out=residual) is residual
    assert torch.equal(residual, expected)


def test_an_epilogue_expression():
    m, n = sized(small=(50, 37), full=(90, 77))
    a, b = GemmCase(m=m, n=n, k=sized(small=64, full=128)).inputs()
    bias, residual = randn([n], torch.float32, 3), randn([m, n], torch.bfloat16, 4)
    out = place("guarded", [m, n], torch.bfloat16)
    jit.gemm(a, b, out=out.view, bias=bias, residual=residual, alpha=0.5,
             epilogue="(acc > 0.0f ? acc : 0.1f * acc) * bias + residual + 0.01f * (row - col)",
             )  # fmt: skip
    row, col = torch.arange(m, device=DEVICE)[:, None], torch.arange(n, device=DEVICE)[None]

    def leaky(acc, bias, residual):
        return torch.where(acc > 0, acc, 0.1 * acc) * bias + residual + 0.01 * (row - col)

    judge("expression", a, b, out, bias=bias, residual=residual, alpha=0.5, epilogue=leaky)


def test_a_broken_epilogue_points_to_the_users_text():
    a, b = GemmCase().inputs()
    with pytest.raises(kiln.CompileError) as caught:
        jit.gemm(a, b, epilogue="acc + no_such_name")
    assert "no_such_name" in str(caught.value) and "epilogue" in str(caught.value)


@pytest.mark.parametrize(
    "expression", ["acc * 0.1 + 1e-3", "acc * .1 + 0x1p-10", "acc / 10. + .5e-1"]
)
def test_numbers_of_an_expression_are_fp32(expression):
    """One double would make all of it double: at a 64th of the speed on most GPUs."""
    a, b = GemmCase().inputs()
    spec = kiln.explain("gemm", a, b, epilogue=expression)["spec"]
    (kernel,) = kiln.inspect(spec, arch())
    assert ".f64" not in kernel["ptx"]


@pytest.mark.parametrize("expression", ["(void)acc", "&acc", "[] {}", '"text"'])
def test_an_expression_of_another_type_points_to_the_users_text(expression):
    a, b = GemmCase().inputs()
    with pytest.raises(kiln.CompileError) as caught:
        jit.gemm(a, b, epilogue=expression)
    assert "gemm epilogue(1): error" in str(caught.value)
    assert "kernel.cu(" not in str(caught.value)


@pytest.mark.parametrize("name", ["bias", "residual"])
def test_an_expression_names_only_what_is_given(name):
    case = GemmCase(m=16, n=16, k=16)
    a, b = case.inputs()
    with pytest.raises(ValueError, match=f"epilogue names {name}, which is not given; give {name}"):
        jit.gemm(a, b, epilogue=f"acc + {name} * 2")
    with pytest.raises(ValueError, match=f"epilogue names {name}, which is not given"):
        kiln.inspect({"op": "gemm", "epilogue": f"acc + {name}", "block_m": 16}, arch())
    jit.gemm(a, b, epilogue=f"acc /* no {name} */ + row * 0.5f")


def tile_groups():
    """Small, several tiles of each row, and one that it does not fill."""
    for dtype in DTYPES:
        for row in tiles(dtype, arch()):
            m, n, k = sized(small=(row[0] + 5, row[1] + 3, 3 * row[2] + 7), full=(300, 301, 303))
            guarded = GemmCase(dtype=dtype, storage="guarded", m=m, n=n, k=k, config=row)
            n, storage = sized(small=(72, "plain"), full=(512, "guarded"))
            few = GemmCase(dtype=dtype, storage=storage, m=16, n=n, k=64, config=row)
            yield CaseGroup(f"{dtype}-{'x'.join(map(str, row))}", (guarded, few))


@pytest.mark.parametrize("group", some_of(tile_groups(), of=3), ids=str)
def test_every_tile_of_the_table_by_config(group):
    group.check()


def ring_groups():
    """K so long that the ring of every number of stages turns over: small, in the least tile of
    each kind. Of rows whose CTAs share K, each CTA's part is that long."""
    for dtype in sized(small=["bf16"], full=list(DTYPES)):
        rows = [row for row in tiles(dtype, arch()) if len(row) > 4]  # with a ring: of Hopper
        rows.sort(key=lambda row: row[0] * row[1])
        kinds = {row[3:]: row for row in reversed(rows)}
        for row in sized(small=list(kinds.values()), full=rows):
            m, n, block_k, stages, *_ = row
            parts = row[5] if len(row) > 5 else 1
            case = GemmCase(dtype=dtype, m=m, n=n, k=(stages + 2) * block_k * parts, config=row)
            yield CaseGroup(f"{dtype}-{'x'.join(map(str, row))}", (case,))


@pytest.mark.parametrize("group", list(ring_groups()), ids=str)
def test_rings_that_turn_over(group):
    group.check()


@pytest.mark.skipif(arch() not in ("sm_90", "sm_90a"), reason="needs compute capability 9.0")
@pytest.mark.parametrize(
    "m,n,config,residual",
    [
        (40, 72, (64, 64, 64, 12), "bf16"),
        (72, 72, (128, 64, 64, 8, 1, 2), "bf16"),
        (130, 200, (128, 192, 64, 4), "bf16"),
        (150, 150, (128, 96, 64, 6, 1, 3), "bf16"),
        (250, 90, (128, 96, 64, 7, 2, 2), "bf16"),
        (153, 140, (144, 128, 64, 5), ""),
        (153, 140, (144, 128, 64, 6, 1, 3), ""),
        (200, 120, (192, 112, 64, 5), "bf16"),
        (120, 200, (112, 192, 64, 5), ""),
    ],
    ids=str,
)
def test_tiles_that_are_loaded_in_part(m, n, config, residual):
    """The last tile along M, along N, and both; the ring turns over."""
    case = GemmCase(dtype="bf16", storage="guarded", m=m, n=n, k=1300, config=config)
    case.check()
    dataclasses.replace(case, batch_a=2, batch_b=2, bias="f32", residual=residual).check()


@pytest.mark.skipif(arch() not in ("sm_90", "sm_90a"), reason="needs compute capability 9.0")
@pytest.mark.parametrize("config", [(128, 256, 64, 4), (128, 64, 64, 8)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiles_of_every_layout_are_loaded_in_part(layout, config):
    """An operand that is not contiguous along K is loaded in whole blocks of 64 rows or columns."""
    GemmCase(
        dtype="bf16", layout=layout, storage="guarded", m=152, n=296, k=328, config=config
    ).check()


@pytest.mark.skipif(arch() not in ("sm_90", "sm_90a"), reason="needs compute capability 9.0")
@pytest.mark.parametrize("m,n", [(11 * 64 + 20, 12 * 64), (28 * 64, 4 * 64 + 24)])
def test_later_tiles_of_few_k_tiles_are_loaded_whole(m, n):
    """A CTA has written one stage of twelve when it comes to its second tile. That has the last
    rows of a, or the first had the last columns of b."""
    GemmCase(dtype="bf16", m=m, n=n, k=64, config=(64, 64, 64, 12)).check()


@pytest.mark.skipif(arch() not in ("sm_90", "sm_90a"), reason="needs compute capability 9.0")
@pytest.mark.parametrize("config", [(128, 96, 64, 6), (128, 160, 64, 5)], ids=str)
def test_rows_of_tiles_are_walked_in_groups(config):
    """Tiles are numbered down four or six rows of them before going right, and the last such group
    has the rest: 15 rows of tiles are groups of 4, 4 and 7, or of 6 and 9."""
    GemmCase(dtype="bf16", m=15 * 128 - 5, n=config[1] + 8, k=64, config=config).check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_several_tiles(dtype):
    assert len(tiles(dtype, arch())) >= 3


def test_a_tile_that_is_no_row_is_refused():
    a, b = GemmCase().inputs()
    with pytest.raises(ValueError, match="config"):
        jit.gemm(a, b, config=(48, 48, 48, 1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shorthand_is_the_same_kernel_as_the_view(layout):
    m = sized(small=40, full=100)
    by_view = GemmCase(layout=layout, m=m, n=72, k=64).check()
    before = kiln.stats()["misses"]
    shorthand = GemmCase(layout=layout, m=m, n=72, k=64, shorthand=True)
    assert torch.equal(shorthand.check(), by_view)
    assert kiln.stats()["misses"] == before


def test_a_fresh_output_has_the_inputs_dtype_or_the_one_asked_for():
    a, b = GemmCase(m=33, n=34, k=35).inputs()
    out = jit.gemm(a, b)
    assert out.shape == (33, 34) and out.dtype == torch.bfloat16 and out.device == a.device
    wide = jit.gemm(a, b, out_dtype=torch.float32)
    assert wide.dtype == torch.float32
    assert torch.equal(jit.gemm(a, b, out_dtype="float32"), wide)


@pytest.mark.emulated
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


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_every_modelled_architecture(device, arch):
    with device.on(arch):
        for dtype in DTYPES:
            GemmCase(dtype=dtype, m=50, n=60, k=70).check()


@pytest.mark.cuda
def test_repeats_are_bit_identical():
    a, b = GemmCase(m=1000, n=1000, k=2000).inputs()
    first = jit.gemm(a, b)
    for _ in range(20):
        assert torch.equal(jit.gemm(a, b), first)


@pytest.mark.cuda
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
