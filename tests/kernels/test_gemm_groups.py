"""GEMM with rows in groups, each of which has a matrix of its own: by offsets and by counts."""

import dataclasses

import kiln
import pytest
import torch
from case_group import CaseGroup
from gemm_case import tiles
from grid import arch, some_of
from grouped_case import GroupedCase
from kiln import jit
from storage import DEVICE, DTYPES, randn

pytestmark = pytest.mark.usefixtures("compiled", "device")

BASE = GroupedCase()
ON_HOPPER = arch() in ("sm_90", "sm_90a")


def both(case, **changes):
    """The case by offsets and by counts."""
    return [dataclasses.replace(case, by=by, **changes) for by in ("offsets", "counts")]


def groups():
    for by in ("offsets", "counts"):
        case = dataclasses.replace(BASE, by=by)
        shapes = [
            dict(),
            dict(sizes=(130, 0, 0, 7, 129), n=200, k=136),  # tiles of several rows, and parts
            dict(sizes=(0, 0, 0), beyond=5),
            dict(sizes=(1,) * 40, n=72, k=40),  # more groups than lanes of a warp
            dict(sizes=(0,) * 70 + (3,), beyond=0),
            dict(sizes=(2, 3), expected_rows=128),
            dict(sizes=(70,), expected_rows=1, n=136),
        ]
        yield CaseGroup(f"{by}-sizes", tuple(dataclasses.replace(case, **x) for x in shapes))
        odd = dict(n=67, k=45, out_storage="odd")
        yield CaseGroup(f"{by}-odd", (dataclasses.replace(case, **odd),))
        rows = dict(layout_b="n", n=72, k=96)
        yield CaseGroup(f"{by}-rows-of-b", (dataclasses.replace(case, **rows),))
        empty = dict(k=0, bias="f32")
        yield CaseGroup(f"{by}-no-k", (dataclasses.replace(case, **empty),))
    for dtype in ("f16", "f32"):
        yield CaseGroup(dtype, tuple(both(BASE, dtype=dtype, n=72)))
    full = dict(bias="f32", residual="bf16", scales="vectors", alpha=0.5, n=72, k=72)
    yield CaseGroup("full", tuple(both(BASE, **full)))
    forms = ("groups", "all", "batch")
    biases = [dataclasses.replace(BASE, bias="bf16", bias_form=form) for form in forms]
    yield CaseGroup("biases", tuple(biases))
    for gate in ("halves", "interleaved"):
        case = dict(activation="swiglu", gate=gate, n=144, k=72, bias="bf16")
        yield CaseGroup(gate, tuple(both(BASE, **case)))
    yield CaseGroup("silu", tuple(both(BASE, activation="silu", out_dtype="f32")))
    if ON_HOPPER:
        bytes_ = dict(dtype="e4m3", n=144, k=272)
        yield CaseGroup("bytes", tuple(both(BASE, scales="vectors", **bytes_)))
        for scales in ("blocks", "columns"):
            yield CaseGroup(scales, tuple(
                case for sizes in ((5, 0, 33, 1), (1, 0, 3))
                for case in both(BASE, scales=scales, sizes=sizes, **bytes_)
            ))  # fmt: skip


def tile_groups():
    """Every tile of Hopper's table that serves them: several tiles of a group, parts of tiles, and
    groups that begin in the middle of one."""
    if not ON_HOPPER:
        return
    for dtype, scales, properties in (
        ("bf16", "", {}),
        ("e4m3", "blocks", dict(scale_a="groups", scale_b="blocks")),
    ):
        name = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn"}[dtype]
        for config in tiles(name, "sm_90a", grouping="offsets", **properties):
            case = GroupedCase(
                dtype=dtype, scales=scales, config=config, k=5 * 128 + 16,
                sizes=(3, config[0] + 2, 0, config[0]), n=config[1] + 8,
            )  # fmt: skip
            yield CaseGroup(f"{dtype}-" + "x".join(map(str, config)), (case,))


@pytest.mark.parametrize("group", [*groups(), *some_of(tile_groups(), of=3)], ids=str)
def test_groups_of_rows(group):
    group.check()


@pytest.mark.skipif(not ON_HOPPER, reason="needs compute capability 9.0")
def test_rows_of_tiles_of_a_group_are_walked_in_groups():
    """Tiles are numbered down four rows of them before going right: the 9 rows of tiles of a group
    are 4 and 5, and the 5 rows of another stay together."""
    config = (128, 96, 64, 6)
    GroupedCase(sizes=(9 * 128 - 5, 3, 513), n=200, k=64, config=config).check()


def test_scales_of_groups_without_a_dimension_of_one():
    x, w = (randn([3, rows, 128], torch.float32, rows) for rows in (24, 64))
    (x8, x_scale), (w8, w_scale) = (jit.quantize(one, group=None) for one in (x, w))
    counts = torch.tensor([3, 0, 24], dtype=torch.int32, device=DEVICE)
    wanted, out = torch.zeros(2, 3, 24, 64, dtype=torch.bfloat16, device=DEVICE)
    b = w8.transpose(1, 2)
    jit.gemm(x8, b, counts=counts, scale_a=x_scale, scale_b=w_scale.transpose(1, 2), out=wanted)
    jit.gemm(x8, b, counts=counts, scale_a=x_scale[..., 0], scale_b=w_scale[..., 0], out=out)
    assert torch.equal(out, wanted) and wanted[2].any()


def test_offsets_and_counts_that_lie_outside_are_clamped():
    """No content of the array makes the kernel read or write elsewhere: the emulated device and
    memcheck would tell."""
    case = GroupedCase(sizes=(4, 4, 4), beyond=0)
    a, b = case.inputs()
    offsets = torch.tensor([-5, 4, 1 << 30], dtype=torch.int32, device=DEVICE)
    out = jit.gemm(a, b, offsets=offsets)
    for rows, group in ((slice(0, 4), 1), (slice(4, 12), 2)):
        assert torch.equal(out[rows], jit.gemm(a[rows], b[group]))
    # Offsets that fall again: a group that would end before it begins has no rows.
    falling = torch.tensor([8, 2, 12], dtype=torch.int32, device=DEVICE)
    out = jit.gemm(a, b, offsets=falling)
    assert torch.equal(out[:2], jit.gemm(a[:2], b[0]))
    case = GroupedCase(by="counts", sizes=(4, 4), beyond=0)
    a, b = case.inputs()
    counts = torch.tensor([-1, 1 << 30], dtype=torch.int32, device=DEVICE)
    out = torch.full_like(jit.gemm(a, b), 7.0)
    jit.gemm(a, b, counts=counts, out=out)
    assert (out[0] == 7).all() and torch.equal(out[1], jit.gemm(a[1], b[1]))


def test_a_layer_of_experts():
    """moe_permute's offsets are what the product takes."""
    tokens, width, hidden, experts = 12, 64, 40, 6
    x = randn([tokens, width], DTYPES["bf16"], 1)
    up = randn([experts, 2 * hidden, width], DTYPES["bf16"], 2, width**-0.5)
    down = randn([experts, width, hidden], DTYPES["bf16"], 3, hidden**-0.5)
    weights, chosen = jit.moe_route(randn([tokens, experts], torch.float32, 4), top_k=2)
    rows, offsets, inverse = jit.moe_permute(x, chosen, num_experts=experts)
    active = jit.gemm(rows, up.mT, offsets=offsets, activation="swiglu")
    out = jit.moe_unpermute(jit.gemm(active, down.mT, offsets=offsets), inverse, weights)
    expected = torch.zeros(tokens, width, dtype=torch.float64, device=DEVICE)
    for k in range(2):
        product = torch.einsum("tw,tnw->tn", x.double(), up.double()[chosen[:, k]])
        gate, partner = product.chunk(2, 1)
        active = (torch.nn.functional.silu(gate) * partner)[:, None]
        result = (active @ down.double()[chosen[:, k]].mT)[:, 0]
        expected += weights[:, k, None].double() * result
    assert (out.double() - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_grouped_mm_is_pytorchs(dtype):
    a, w = randn([40, 64], DTYPES[dtype], 1), randn([5, 48, 64], DTYPES[dtype], 2, 0.125)
    offs = torch.tensor([8, 8, 24, 32, 40], dtype=torch.int32, device=DEVICE)
    out = jit.grouped_mm(a, w.mT, offs=offs, bias=randn([5, 48], DTYPES[dtype], 3))
    assert torch.equal(
        out, jit.gemm(a, w.mT, offsets=offs, bias=randn([5, 48], DTYPES[dtype], 3)))  # fmt: skip
    batch = jit.grouped_mm(a.view(5, 8, 64), w.mT, bias=randn([5, 48], DTYPES[dtype], 3))
    assert batch.shape == (5, 8, 48)
    if dtype == "bf16":  # all that PyTorch's takes
        mine = jit.grouped_mm(a, w.mT, offs=offs)
        torch.testing.assert_close(mine, torch.nn.functional.grouped_mm(a, w.mT, offs=offs))
    for operands, text in (
        ((a, a.mT), "mat_b must have 3 dimensions [groups, k, n], got [64, 40]"),
        ((a, w.mT), "offs must be given where mat_a has 2 dimensions"),
    ):
        with pytest.raises(ValueError) as caught:
            jit.grouped_mm(*operands)
        assert text in str(caught.value)


def test_an_epilogue_sees_its_group_and_row():
    case = GroupedCase(sizes=(3, 0, 2), beyond=0, k=32)
    a, b = case.inputs()
    out = jit.gemm(a, b, offsets=case.numbers(), out_dtype="float32",
                   epilogue="0.0f * acc + 100.0f * batch + row")  # fmt: skip
    expected = torch.tensor([0.0, 1, 2, 203, 204], device=DEVICE)
    assert torch.equal(out, expected[:, None].expand(5, case.n))


def test_nothing_compiles_for_other_numbers():
    case = GroupedCase(sizes=(9, 2, 0), k=72)
    case.run()
    with kiln.no_compile():
        for sizes in ((0, 0, 0), (1, 30, 2), (5, 5, 5)):
            dataclasses.replace(case, sizes=sizes, expected_rows=11).check()
        dataclasses.replace(case, sizes=(2,) * 50, expected_rows=11).check()


def test_the_spec_of_a_call_names_its_kernel():
    for case in both(BASE):
        explained = case.explain()
        assert explained["spec"]["grouping"] == case.by
        assert kiln.prewarm(explained["spec"], "sm_90a", check=True)["total"] == 1


def test_no_rows_at_all():
    for by, a in (("offsets", [0, 16]), ("counts", [2, 0, 16])):
        numbers = torch.zeros(2, dtype=torch.int32, device=DEVICE)
        x, w = randn(a, DTYPES["bf16"], 1), randn([2, 16, 24], DTYPES["bf16"], 2)
        assert jit.gemm(x, w, **{by: numbers}).shape == (*a[:-1], 24)


def test_a_k_of_1_may_have_any_stride():
    for by, a in (("offsets", [6, 1]), ("counts", [2, 6, 1])):
        x, w = randn(a, DTYPES["bf16"], 1), randn([2, 1, 24], DTYPES["bf16"], 2)
        numbers = torch.tensor([2, 6], dtype=torch.int32, device=DEVICE)
        out = jit.gemm(x, w, **{by: numbers}, out=torch.zeros(*a[:-1], 24, device=DEVICE))
        silly = x.as_strided(a, (*x.stride()[:-1], 7))
        assert silly.is_contiguous()
        again = jit.gemm(silly, w, **{by: numbers}, out=torch.zeros_like(out))
        assert torch.equal(again, out) and out.any()


X, W = torch.ones(6, 16), torch.ones(3, 16, 24)
OFFSETS = torch.tensor([1, 2, 6], dtype=torch.int32)
REFUSALS = {
    "two": (X, W, dict(counts=OFFSETS), ValueError,
            "counts cannot be given beside offsets; give one of the two"),
    "b": (X, W[0], {}, ValueError,
          "b must have 3 dimensions [groups, k, n] with offsets, got [16, 24]"),
    "a-offsets": (X[None], W, {}, ValueError,
                  "a must have 2 dimensions with offsets, the rows of all groups, got [1, 6, 16]; "
                  "counts are for [groups, rows, k]"),
    "a-counts": (X, W, dict(offsets=None, counts=OFFSETS), ValueError,
                 "a must have 3 dimensions [groups, rows, k] with counts, and 3 groups like b, got "
                 "[6, 16]; offsets are for [rows, k]"),
    "groups": (X, W, dict(offsets=OFFSETS[:2]), ValueError, "offsets must have shape [3]"),
    "dtype": (X, W, dict(offsets=OFFSETS.long()), TypeError, "offsets must be int32, got int64"),
    "columns": (X.t().contiguous().t(), W, {}, ValueError,
                "a must be contiguous along K where its rows are in groups, got strides [1, 6]; "
                "call .contiguous() on the tensor with K last"),
    "batch": (torch.ones(2, 6, 16), W, dict(offsets=None, counts=OFFSETS), ValueError,
              "b must have 2 groups like a, got 3: a is [2, 6, 16], b is [3, 16, 24]"),
    "hint": (X, W[0], dict(offsets=None, expected_rows=3), ValueError,
             "expected_rows is for rows in groups; give offsets or counts, or leave it out"),
    "negative": (X, W, dict(expected_rows=-1), ValueError,
                 "expected_rows must not be negative, got -1"),
    "bias": (X, W, dict(bias=torch.ones(2, 24)), ValueError, "bias must have shape [3, 24]"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused(name):
    x, w, changes, error, text = REFUSALS[name]

    def moved(value):
        if not torch.is_tensor(value):
            return value
        is_index = value.dtype in (torch.int32, torch.int64)
        return value.to(DEVICE, value.dtype if is_index else torch.bfloat16)

    options = {key: moved(value) for key, value in (dict(offsets=OFFSETS) | changes).items()}
    with pytest.raises(error) as caught:
        jit.gemm(moved(x), moved(w), **options)
    assert text in str(caught.value)


@pytest.mark.cuda
@pytest.mark.parametrize("scales", ["", "blocks"])
@pytest.mark.parametrize("by", ["offsets", "counts"])
def test_large_problems(by, scales):
    generator = torch.Generator().manual_seed(3)
    sizes = tuple(torch.randint(0, 700, [64], generator=generator).tolist())
    case = GroupedCase(by=by, sizes=sizes, n=1408, k=2048, scales=scales,
                       dtype="e4m3" if scales else "bf16")  # fmt: skip
    case.check()
    few = tuple(torch.randint(0, 4, [200], generator=generator).tolist())
    dataclasses.replace(case, sizes=few).check()


@pytest.mark.cuda
def test_a_graph_is_replayed_with_other_numbers():
    case = GroupedCase(sizes=(40, 0, 300, 17), n=256, k=512)
    a, b = case.inputs()
    offsets, out = case.numbers(), case.output().view
    jit.gemm(a, b, offsets=offsets, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        jit.gemm(a, b, offsets=offsets, out=out)
    other = dataclasses.replace(case, sizes=(100, 200, 0, 57))
    offsets.copy_(other.numbers())
    out.fill_(float("nan"))
    graph.replay()
    for rows, own, matrix in zip(other.rows_of(a), other.rows_of(out), b, strict=True):
        if len(rows):
            assert torch.allclose(own.float(), rows.float() @ matrix.float(), atol=0.05, rtol=0.02)
