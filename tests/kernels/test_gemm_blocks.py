"""GEMM of 8-bit floats with scales of blocks: one for each row of a and 128 of K, and one for each
column of b, or for 128 of them, and 128 of K."""

import dataclasses

import grid
import kiln
import pytest
import torch
from block_case import BlockCase, blocks_of
from case_group import CaseGroup
from gemm_case import tiles
from kiln import jit
from storage import DEVICE, F8_DTYPES

pytestmark = [
    pytest.mark.skipif(
        grid.arch() not in ("sm_90", "sm_90a"), reason="needs compute capability 9.0"
    ),
    pytest.mark.usefixtures("compiled", "device"),
]

E4M3 = F8_DTYPES["e4m3"]
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
