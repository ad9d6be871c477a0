"""Attention with few queries: blocks that share keys and meet in a workspace, tiles that hold the
rows of several heads. tests/emulated runs the same cases in smaller sizes."""

import pytest
import torch
from attention_case import AttentionCase, judge
from kiln import jit
from split_bodies import (  # noqa: F401
    SHAPES,
    split,
    test_a_mask_of_a_variant,
    test_a_mask_of_a_variant_beside_a_window,
    test_hooks_about_rows_run_once,
    test_logits_of_a_variant,
    test_repeats_are_bit_identical,
    test_the_value_of_the_dominating_key_is_read,
    test_what_lies_in_the_workspace_does_not_matter,
)
from split_case import (
    climb_groups,
    edge_groups,
    option_groups,
    peak_groups,
    shape_groups,
    storage_groups,
    unsplit_edge_groups,
)

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def len_kv():
    return 4099


@pytest.mark.parametrize(
    "group", list(shape_groups([1037, 4099, 1100, 8192, 641, 20001], split=True)), ids=str
)
def test_shapes(group):
    group.check()


@pytest.mark.parametrize("group", list(shape_groups([100, 1, 31, 7], split=False)), ids=str)
def test_shapes_of_one_split(group):
    group.check()


@pytest.mark.parametrize(
    "group",
    [
        *option_groups([64], [777, 3000]),
        *option_groups([128, 256], [1100]),
        *option_groups([256, 128], [5001]),
    ],
    ids=str,
)
def test_options(group):
    group.check()


@pytest.mark.parametrize(
    "group",
    [
        group
        for layout in ("bshd", "bhsd")
        for dim in (64, 72)
        for group in storage_groups(layout, dim, 1555)
    ],
    ids=str,
)
def test_layouts_and_strides(group):
    group.check()


@pytest.mark.parametrize(
    "group",
    [*edge_groups(), *edge_groups(dtype="f16", head_dim=128), *unsplit_edge_groups()],
    ids=str,
)
def test_edges(group):
    group.check()


@pytest.mark.parametrize(
    "group", [*peak_groups([64, 128, 256], 1000), *peak_groups([64, 128], 5003)], ids=str
)
def test_peaks(group):
    group.check()


CLIMBERS = {"decode": dict(len_q=2, heads=4), "few": dict(len_q=17), "many": dict(len_q=200)}


@pytest.mark.parametrize(
    "group",
    [
        *climb_groups(
            [(dtype, dim) for dtype in ("f16", "bf16") for dim in (64, 128)],
            1000,
            CLIMBERS,
            periods=(16, 32, 64, 128, 256),
        ),
        *climb_groups([("f16", 256)], 3000, CLIMBERS, periods=(64, 128)),
    ],
    ids=str,
)
def test_growth_of_the_maximum(group):
    group.check()


@pytest.mark.parametrize(
    "shape",
    [
        *(
            dict(len_q=1, heads=32, heads_kv=8, head_dim=128, batch=batch, len_kv=len_kv)
            for batch, len_kv in [(1, 8192), (3, 8192), (16, 8192), (64, 1024)]
        ),
        dict(len_q=700, causal=True, len_kv=8192),
    ],
    ids=str,
)
def test_repeats_of_full_launches_are_bit_identical(shape):
    """However the blocks come to run, with and without splits."""
    case = AttentionCase(**shape)
    q, k, v = case.inputs()
    first, first_lse = case.check()
    for _ in range(50):
        out, lse = jit.flash_attention(q, k, v, return_lse=True, causal=case.causal)
        assert torch.equal(out, first) and torch.equal(lse, first_lse)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_calls_on_two_streams_have_a_workspace_each(shape):
    case = AttentionCase(len_kv=3001, **shape)
    inputs = [case.inputs(seed) for seed in (0, 20)]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    results = []
    for _ in range(50):
        for stream, (q, k, v) in zip(streams, inputs):
            with torch.cuda.stream(stream):
                results.append(jit.flash_attention(q, k, v, return_lse=True))
    torch.cuda.synchronize()
    for i, (out, lse) in enumerate(results):
        judge(f"{case}, call {i}", *inputs[i % 2], out, lse)
