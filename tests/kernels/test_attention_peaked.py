"""Peaked data: one key takes all the weight of a row, so that one lost or extra key shows.

The peaks sweep every edge of every tile; V spells the index of its key in signs.
"""

import dataclasses

import pytest
import torch
from attention_case import AttentionCase
from case_group import CaseGroup
from grid import sized
from split_case import spelled_keys

pytestmark = pytest.mark.usefixtures("compiled", "device")

SHAPES = sized(
    small=[(130, 130), (65, 150), (90, 40)],
    full=[(300, 300), (129, 517), (400, 150), (1, 129), (17, 1000)],
)
KINDS = sized(
    small=[("f16", 64), ("bf16", 128)],
    full=[(dtype, dim) for dtype in ("f16", "bf16") for dim in (64, 128, 256)],
)
MASKS = {
    "full": ({}, ["sweep", "first", "last"]),
    "causal": ({"causal": True}, ["diagonal", "beyond", "first", "sweep"]),
    "window": ({"window": (33, 0)}, ["left_edge", "beyond_left", "diagonal", "beyond"]),
    "two-sided": (
        {"window": (sized(small=40, full=64), 31)}, ["left_edge", "beyond_left", "beyond"],
    ),
}  # fmt: skip


def groups():
    for dtype, dim in KINDS:
        for mask, (options, peaks) in MASKS.items():
            case = AttentionCase(dtype=dtype, head_dim=dim, scale=1.0, **options)
            cases = tuple(
                dataclasses.replace(case, peak=peak, len_q=len_q, len_kv=len_kv)
                for peak in peaks
                for len_q, len_kv in SHAPES
            )
            yield CaseGroup(f"{dtype}-d{dim}-{mask}", cases)


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_peaks(group):
    group.check()


def diagonal_groups():
    """The diagonal at every distance from the edges of tiles: of keys, and of a warp's rows. What
    lies on an edge is seen by one row alone, the first or the last of a warp."""
    for first in range(0, 64, 16):
        cases = tuple(
            AttentionCase(
                scale=1.0, causal=True, peak=peak, heads=1, len_q=80, len_kv=80 + more
            )
            for more in range(first, first + 16)
            for peak in ("diagonal", "beyond")
        )  # fmt: skip
        yield CaseGroup(f"keys-more-than-rows-from-{first}", cases)


@pytest.mark.parametrize("group", list(diagonal_groups()), ids=str)
def test_the_diagonal_by_the_edges_of_tiles(group):
    group.check()


@pytest.mark.parametrize("dim", [64, 128])
def test_the_value_of_the_dominating_key_is_read(dim):
    """Independent of the reference: the signs of a row's output spell the key that it looked at."""
    length = sized(small=150, full=700)
    case = AttentionCase(
        head_dim=dim, scale=1.0, peak="diagonal", causal=True, len_q=length, len_kv=length
    )
    out, _ = case.check()
    assert torch.equal(spelled_keys(out)[0, :, 0].cpu(), torch.arange(length))
