"""Attention over head dims, lengths, masks, head ratios and options, against float64."""

import grid
import numpy as np
import pytest
import torch
from attention_case import OPTIONS, AttentionCase, judge
from case_group import CaseGroup
from grid import sized
from kiln import jit

pytestmark = pytest.mark.usefixtures("compiled", "device")

DTYPES = ["f16", "bf16"]
EQUAL_DIMS = (8, 16, 40, 64, *sized(small=(), full=(72,)), 80, 96, 112, 128, 160, 192, 256)
HEAD_DIMS = [*((dim, dim) for dim in EQUAL_DIMS), (192, 128), (64, 128), (128, 64)]
MASKS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (sized(small=20, full=70), 0)},
}
LENGTHS = sized(
    small=[(1, 1), (7, 7), (63, 65), (65, 63), (1, 150), (70, 7)],
    full=[
        (1, 1), (7, 7), (63, 65), (64, 64), (65, 63), (127, 129), (129, 127), (1, 1000), (1000, 7),
        (64, 1000), (1000, 1000),
    ],
)  # fmt: skip
RATIOS = sized(small=[1, 3, 4, 8], full=[1, 3, 4, 5, 7, 8, 16])


def shape_groups():
    """Small, a head dim has two of three masks, which take turns with the dtypes."""
    for at, (dim, dim_v) in enumerate(HEAD_DIMS):
        for kind, (name, mask) in enumerate(MASKS.items()):
            if kind == at % 3 and not grid.is_full():
                continue
            for dtype in sized(small=[DTYPES[(at + kind) % 2]], full=DTYPES):
                cases = tuple(
                    AttentionCase(
                        dtype=dtype, head_dim=dim, head_dim_v=dim_v, len_q=len_q, len_kv=len_kv,
                        batch=1 + i % sized(small=2, full=3), heads=1 + i % 2, **mask,
                    )
                    for i, (len_q, len_kv) in enumerate(LENGTHS)
                )  # fmt: skip
                yield CaseGroup(f"{dtype}-d{dim}x{dim_v}-{name}", cases)


@pytest.mark.parametrize("group", list(shape_groups()), ids=str)
def test_head_dims_and_lengths(group):
    group.check()


def ratio_groups():
    shape = sized(small=dict(len_q=33, len_kv=50), full=dict(len_q=65, len_kv=100, batch=2))
    for ratio in RATIOS:
        cases = tuple(
            AttentionCase(heads=ratio * heads_kv, heads_kv=heads_kv, **shape, **mask)
            for heads_kv in (1, 2)
            for mask in MASKS.values()
        )
        yield CaseGroup(f"ratio{ratio}", cases)


@pytest.mark.parametrize("group", list(ratio_groups()), ids=str)
def test_head_ratios(group):
    group.check()


WINDOWS = sized(
    small=[(0, 0), (1, 0), (16, 0), (0, 5), (-1, 3), (63, 0), (64, 64), (500, 500)],
    full=[
        (0, 0), (1, 0), (16, 0), (0, 5), (127, -1), (-1, 3), (3, 3), (63, 0), (64, 64),
        (1000, 1000), (5000, 0), (-1, 5000),
    ],
)  # fmt: skip
OPEN_WINDOWS = [(-1, 0), (0, -1), (2**31 - 1, 2**31 - 1)]
WINDOW_SHAPES = sized(
    small=[(100, 100, 64), (35, 150, 64), (90, 20, 64)],
    full=[(200, 200, 64), (65, 300, 64), (130, 40, 40)],
)


def window_groups():
    for left, right in WINDOWS + OPEN_WINDOWS:
        for causal in (False, True):
            cases = tuple(
                AttentionCase(
                    window=(left, right), causal=causal, len_q=len_q, len_kv=len_kv, head_dim=dim
                )
                for len_q, len_kv, dim in WINDOW_SHAPES
            )
            yield CaseGroup(f"window{left},{right}" + ("-causal" if causal else ""), cases)


@pytest.mark.parametrize("group", list(window_groups()), ids=str)
def test_windows(group):
    group.check()


OPTIONS = {
    **OPTIONS,
    "all": {"softcap": 8.0, "alibi": "bh", "sinks": "bf16", "causal": True, "window": (40, 0)},
    "gpt-oss": {
        "sinks": "bf16", "window": (sized(small=31, full=127), 0), "causal": True,
    },
    "gemma": {
        "softcap": 50.0, "window": (sized(small=25, full=100), 0), "causal": True,
        "scale": 144**-0.5,
    },
}  # fmt: skip
OPTION_SHAPES = sized(
    small=[(40, 40, False), (33, 97, True), (80, 29, True)],
    full=[(150, 150, False), (33, 257, True), (260, 129, True)],
)


def option_groups():
    """Small, each option in one dtype and head dim."""
    for i, (name, options) in enumerate(OPTIONS.items()):
        kinds = [(dtype, dim) for dtype in DTYPES for dim in (64, 128)]
        for dtype, dim in sized(small=[(DTYPES[i % 2], 64)], full=kinds):
            cases = tuple(
                AttentionCase(
                    dtype=dtype, head_dim=dim, batch=2, heads=sized(small=4, full=6), heads_kv=2,
                    len_q=len_q, len_kv=len_kv, **{"causal": causal, **options},
                )
                for len_q, len_kv, causal in OPTION_SHAPES
            )  # fmt: skip
            yield CaseGroup(f"{name}-{dtype}-d{dim}", cases)


@pytest.mark.parametrize("group", list(option_groups()), ids=str)
def test_options(group):
    group.check()


@pytest.mark.emulated
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (9, 0), "softcap": 4.0}])
def test_numpy_arrays(options):
    q, k, v = AttentionCase(dtype="f16", batch=2, len_q=45, len_kv=77).inputs()
    arrays = [x.numpy() for x in (q, k, v)]
    out, lse = jit.flash_attention(*arrays, return_lse=True, **options)
    assert type(out) is np.ndarray and out.dtype == np.float16 and lse.dtype == np.float32
    judge("NumPy", q, k, v, torch.from_numpy(out), torch.from_numpy(lse), **options)
    given = np.full_like(out, np.nan)
    jit.flash_attention(*arrays, out=given, **options)
    assert np.array_equal(given, out)


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_every_modelled_architecture(device, arch):
    with device.on(arch):
        for case in (
            AttentionCase(head_dim=256, len_q=20, len_kv=75, causal=True),
            AttentionCase(head_dim=64, len_q=90, len_kv=75, softcap=3.0),
        ):
            case.check()


@pytest.mark.emulated
def test_softcap_without_an_instruction_for_tanh(device):
    """Where a warp's logits are far below the cap, a polynomial; scripts/plant_faults.py counts on
    the scale."""
    with device.on("sm_80"):
        shape = dict(head_dim=64, len_q=40, len_kv=75)
        AttentionCase(softcap=3.0, scale=2.0**10, magnitude=2.0**-12, **shape).check()
        AttentionCase(softcap=50.0, **shape).check()


def test_alibi_of_a_causal_call():
    AttentionCase(head_dim=64, len_q=70, len_kv=90, causal=True, alibi="h").check()


@pytest.mark.parametrize("return_lse", [False, True])
def test_given_outputs_are_used(return_lse):
    case = AttentionCase(len_q=77, len_kv=90)
    q, k, v = case.inputs()
    fresh, fresh_lse = jit.flash_attention(q, k, v, return_lse=True)
    out, lse = case.outputs()
    returned = jit.flash_attention(q, k, v, out=out.view, lse=lse, return_lse=return_lse)
    returned = returned if return_lse else (returned,)
    assert returned[0].data_ptr() == out.view.data_ptr()
    assert torch.equal(out.view, fresh) and torch.equal(lse, fresh_lse)


@pytest.mark.parametrize(
    "case",
    [
        AttentionCase(len_q=150, len_kv=90, heads=4, heads_kv=2, causal=True),
        AttentionCase(dtype="f16", len_q=1, len_kv=1100, heads=4),
        AttentionCase(len_q=70, len_kv=70, head_dim=40, layout="bhsd", storage="odd"),
    ],
    ids=["tiles", "split", "element-wise"],
)
def test_the_queries_may_be_replaced(case):
    q, k, v = case.inputs()
    options = {**case.options(), "layout": case.layout}
    expected = jit.flash_attention(q, k, v, **options)
    assert jit.flash_attention(q, k, v, out=q, **options) is q
    assert torch.equal(q, expected)


def test_the_output_alone_equals_the_output_with_lse():
    q, k, v = AttentionCase(len_q=77, len_kv=90).inputs()
    alone = jit.flash_attention(q, k, v)
    assert alone.shape == (1, 77, 2, 64) and alone.dtype == q.dtype and alone.is_contiguous()
    assert torch.equal(alone, jit.flash_attention(q, k, v, return_lse=True)[0])


@pytest.mark.cuda
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"softcap": 4.0, "window": (50, 0)}])
def test_repeats_are_bit_identical(options):
    """On the emulated device, test_orders.py asks for more."""
    case = AttentionCase(len_q=1000, len_kv=1000, heads=8, heads_kv=2, batch=2)
    q, k, v = case.inputs()
    first, first_lse = jit.flash_attention(q, k, v, return_lse=True, **options)
    for _ in range(20):
        out, lse = case.outputs()
        jit.flash_attention(q, k, v, out=out.view, lse=lse, **options)
        assert torch.equal(out.view, first) and torch.equal(lse, first_lse)
