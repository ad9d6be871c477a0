"""Attention with few queries: blocks that share keys and meet in a workspace, tiles that hold the
rows of several heads."""

import dataclasses

import numpy as np
import pytest
import torch
from attention_case import AttentionCase, edges, extreme_inputs, judge
from grid import sized
from kiln import jit
from split_case import (
    SHAPES,
    climb_groups,
    each_split,
    edge_groups,
    option_groups,
    peak_groups,
    shape_groups,
    spelled_keys,
    storage_groups,
    unsplit_edge_groups,
)
from storage import leave_in_free_memory

pytestmark = pytest.mark.usefixtures("compiled", "device")

LENGTHS = sized(small=[1037, 555, 1100, 641], full=[1037, 4099, 1100, 8192, 641, 20001])


@pytest.mark.parametrize("group", list(shape_groups(LENGTHS, split=True)), ids=str)
def test_shapes(group):
    group.check()


@pytest.mark.parametrize("group", list(shape_groups([100, 1, 31, 7], split=False)), ids=str)
def test_shapes_of_one_split(group):
    group.check()


OPTION_KINDS = sized(
    small=[([64, 128, 256], [777])],
    full=[([64], [777, 3000]), ([128, 256], [1100]), ([256, 128], [5001])],
)


@pytest.mark.parametrize(
    "group", [group for kind in OPTION_KINDS for group in option_groups(*kind)], ids=str
)
def test_options(group):
    group.check()


STORAGE_KINDS = sized(
    small=[("bshd", 64, 555), ("bhsd", 72, 555)],
    full=[(layout, dim, 1555) for layout in ("bshd", "bhsd") for dim in (64, 72)],
)


@pytest.mark.parametrize(
    "group", [group for kind in STORAGE_KINDS for group in storage_groups(*kind)], ids=str
)
def test_layouts_and_strides(group):
    group.check()


EDGE_KINDS = [{}, *sized(small=[], full=[dict(dtype="f16", head_dim=128)])]


@pytest.mark.parametrize(
    "group",
    [*(group for kind in EDGE_KINDS for group in edge_groups(**kind)), *unsplit_edge_groups()],
    ids=str,
)
def test_edges(group):
    group.check()


PEAK_KINDS = sized(small=[([64, 128], 1000)], full=[([64, 128, 256], 1000), ([64, 128], 5003)])


@pytest.mark.parametrize(
    "group", [group for kind in PEAK_KINDS for group in peak_groups(*kind)], ids=str
)
def test_peaks(group):
    group.check()


CLIMBERS = {
    "decode": dict(len_q=2, heads=4),
    "few": dict(len_q=17),
    "many": dict(len_q=sized(small=70, full=200)),
}
# (dtype, head dim) of each, keys, keys between two levels
CLIMBS = sized(
    small=[([("bf16", 64), ("f16", 128)], 500, (16, 64, 128))],
    full=[
        ([(dtype, dim) for dtype in ("f16", "bf16") for dim in (64, 128)], 1000,
         (16, 32, 64, 128, 256)),
        ([("f16", 256)], 3000, (64, 128)),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    "group",
    [
        group
        for kinds, len_kv, periods in CLIMBS
        for group in climb_groups(kinds, len_kv, CLIMBERS, periods)
    ],
    ids=str,
)
def test_growth_of_the_maximum(group):
    group.check()


@pytest.mark.parametrize("len_q", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_split_without_keys_has_no_weight(dtype, len_q):
    """Nor, where the logits of all others lie far below 0, does it set their maximum."""
    shape = dict(len_q=len_q, len_kv=1100, heads=4)
    assert AttentionCase(**shape).explain()["splits"] > 1
    q, k, v = extreme_inputs(dtype, -6e4, **shape)
    out, lse = jit.flash_attention(q, k, v, scale=1.0, return_lse=True)
    judge("logits near -6e4", q, k, v, out, lse, scale=1.0)


@each_split
def test_they_split(split):
    assert split.explain()["splits"] > 1


@each_split
def test_the_value_of_the_dominating_key_is_read(split):
    """Independent of the reference: the signs of a row's output spell the key that it looked at."""
    rows = split.batch * split.heads * split.len_q
    peaked = dataclasses.replace(
        split, scale=1.0, peak="edges", batch=split.batch * split.len_kv // 8 // rows + 1
    )
    assert peaked.explain()["splits"] > 1
    out, _ = peaked.check()
    assert torch.equal(spelled_keys(out).transpose(1, 2), edges(peaked))


@each_split
def test_repeats_are_bit_identical(split):
    q, k, v = split.inputs()
    first, first_lse = jit.flash_attention(q, k, v, return_lse=True)
    others = split.inputs(seed=20)
    for _ in range(20):
        jit.flash_attention(*others)  # leaves its own results in the workspace
        out, lse = split.outputs()
        jit.flash_attention(q, k, v, out=out.view, lse=lse)
        assert torch.equal(out.view, first) and torch.equal(lse, first_lse)


@each_split
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])  # 0x7f7f7f7f is 3e38, 0xffffffff is NaN
def test_what_lies_in_the_workspace_does_not_matter(split, byte):
    q, k, v = split.inputs()
    size = split.explain()["workspace_bytes"]
    assert size > 0
    out, lse = split.outputs()
    leave_in_free_memory(size, byte)
    jit.flash_attention(q, k, v, out=out.view, lse=lse)
    judge(f"{split} in {byte:#x}", q, k, v, out, lse)


@pytest.mark.emulated
def test_numpy_arrays():
    q, k, v = AttentionCase(dtype="f16", len_q=3, len_kv=600).inputs()
    out, lse = jit.flash_attention(q.numpy(), k.numpy(), v.numpy(), return_lse=True)
    judge("NumPy", q, k, v, torch.from_numpy(out), torch.from_numpy(lse))


class Exported:
    """An array of a framework that has no allocator for others."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.emulated
def test_a_framework_without_an_allocator_gets_unsplit_calls():
    q, k, v = AttentionCase(dtype="f16", len_q=3, len_kv=600).inputs()
    out = np.full(q.shape, np.nan, np.float16)
    jit.flash_attention(*(Exported(x) for x in (q, k, v)), out=out)
    judge(
        "DLPack", q, k, v, torch.from_numpy(out), jit.flash_attention(q, k, v, return_lse=True)[1]
    )


@pytest.mark.emulated
@pytest.mark.parametrize("arch,splits", [("sm_86", 72), ("sm_100a", 128)])
def test_the_most_splits_there_are(device, arch, splits):
    """By 64 threads where shared memory is scarce."""
    case = AttentionCase(head_dim=256, len_q=1, len_kv=8400, heads=1)
    with device.on(arch):
        assert case.explain()["splits"] == splits
        case.check()


@pytest.mark.cuda
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


@pytest.mark.cuda
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_calls_on_two_streams_have_a_workspace_each(shape):
    case = AttentionCase(**shape)
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
