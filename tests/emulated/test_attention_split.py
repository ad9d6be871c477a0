"""Attention with few queries on the emulated device: blocks that share keys and meet in a
workspace, tiles that hold the rows of several heads. The GPU's cases in small sizes."""

import itertools

import kiln
import numpy as np
import pytest
import torch
from attention_case import AttentionCase, judge
from conftest import ARCH
from kiln import jit
from split_bodies import (  # noqa: F401
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

pytestmark = pytest.mark.usefixtures("compiled", "order")


@pytest.fixture
def len_kv():
    return 777


@pytest.mark.parametrize("group", list(shape_groups([1037, 555, 1100, 641], split=True)), ids=str)
def test_shapes(group):
    group.check()


@pytest.mark.parametrize("group", list(shape_groups([100, 1, 31, 7], split=False)), ids=str)
def test_shapes_of_one_split(group):
    group.check()


@pytest.mark.parametrize("group", list(option_groups([64, 128, 256], [777])), ids=str)
def test_options(group):
    group.check()


@pytest.mark.parametrize(
    "group", [*storage_groups("bshd", 64, 555), *storage_groups("bhsd", 72, 555)], ids=str
)
def test_layouts_and_strides(group):
    group.check()


@pytest.mark.parametrize("group", [*edge_groups(), *unsplit_edge_groups()], ids=str)
def test_edges(group):
    group.check()


@pytest.mark.parametrize("group", list(peak_groups([64, 128], 1000)), ids=str)
def test_peaks(group):
    group.check()


CLIMBERS = {"decode": dict(len_q=2, heads=4), "few": dict(len_q=17), "many": dict(len_q=70)}


@pytest.mark.parametrize(
    "group",
    list(climb_groups([("bf16", 64), ("f16", 128)], 500, CLIMBERS, periods=(16, 64, 128))),
    ids=str,
)
def test_growth_of_the_maximum(group):
    group.check()


@pytest.mark.parametrize("shape", [dict(len_q=1, heads=6), dict(len_q=20, heads=6)], ids=str)
def test_every_order_gives_the_same_bits(shape):
    """Nor may it matter which block is the last to arrive, and joins the others' results."""
    case = AttentionCase(len_kv=1100, heads_kv=2, **shape)
    assert case.explain()["splits"] > 1
    q, k, v = case.inputs()
    results = []
    for schedule, seed in itertools.product(("late", "eager"), (0, 1, 2, 12345)):
        with kiln.device(ARCH, schedule=schedule, seed=seed):
            out, lse = case.outputs()
            jit.flash_attention(q, k, v, out=out.view, lse=lse)
            results.append((out.view, lse))
    for out, lse in results[1:]:
        assert torch.equal(out, results[0][0]) and torch.equal(lse, results[0][1])


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


def test_a_framework_without_an_allocator_gets_unsplit_calls():
    q, k, v = AttentionCase(dtype="f16", len_q=3, len_kv=600).inputs()
    out = np.full(q.shape, np.nan, np.float16)
    jit.flash_attention(*(Exported(x) for x in (q, k, v)), out=out)
    judge(
        "DLPack", q, k, v, torch.from_numpy(out), jit.flash_attention(q, k, v, return_lse=True)[1]
    )


@pytest.mark.parametrize("arch,splits", [("sm_86", 72), ("sm_100a", 128)])
def test_the_most_splits_there_are(arch, splits):
    """By 64 threads where shared memory is scarce."""
    case = AttentionCase(head_dim=256, len_q=1, len_kv=8400, heads=1)
    with kiln.device(f"emulator:{arch}"):
        assert case.explain()["splits"] == splits
        case.check()
