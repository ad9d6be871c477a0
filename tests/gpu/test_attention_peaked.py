"""Peaked data: one key takes all the weight of a row, so that one lost or extra key shows.

The peaks sweep every edge of every tile; V spells the index of its key in signs.
"""

import dataclasses

import pytest
import torch
from attention_case import AttentionCase, CaseGroup

pytestmark = pytest.mark.usefixtures("compiled")

SHAPES = [(300, 300), (129, 517), (400, 150), (1, 129), (17, 1000)]


def base_cases():
    masks = {
        "full": ({}, ["sweep", "first", "last"]),
        "causal": ({"causal": True}, ["diagonal", "beyond", "first", "sweep"]),
        "window": ({"window": (33, 0)}, ["left_edge", "beyond_left", "diagonal", "beyond"]),
        "two-sided": ({"window": (64, 31)}, ["left_edge", "beyond_left", "beyond"]),
    }
    for dtype in ("f16", "bf16"):
        for dim in (64, 128, 256):
            for mask, (options, peaks) in masks.items():
                case = AttentionCase(
                    dtype=dtype, head_dim=dim, scale=1.0, heads=2, heads_kv=1, **options
                )
                yield f"{dtype}-d{dim}-{mask}", case, peaks


def groups():
    for name, case, peaks in base_cases():
        cases = tuple(
            dataclasses.replace(case, peak=peak, len_q=len_q, len_kv=len_kv)
            for peak in peaks
            for len_q, len_kv in SHAPES
        )
        yield CaseGroup(name, cases)


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_peaks(group):
    group.check()


@pytest.mark.parametrize("dim", [64, 128])
def test_the_value_of_the_dominating_key_is_read(dim):
    """Independent of the reference: the signs of a row's output spell the key that it looked at."""
    case = AttentionCase(
        head_dim=dim, scale=1.0, peak="diagonal", causal=True, len_q=700, len_kv=700
    )
    out, _ = case.check()
    bits = (out[0, :, 0, :16] > 0).int()
    seen = (bits << torch.arange(16, device=bits.device)).sum(-1)
    assert seen.tolist() == list(range(700))
