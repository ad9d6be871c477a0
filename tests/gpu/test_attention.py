"""Attention over head dims, lengths, masks, head ratios and options, against float64."""

import pytest
from attention_case import OPTIONS, AttentionCase, CaseGroup

pytestmark = pytest.mark.usefixtures("compiled")

DTYPES = ["f16", "bf16"]
HEAD_DIMS = [(d, d) for d in (8, 16, 40, 64, 72, 80, 96, 112, 128, 160, 192, 256)] + [
    (192, 128),
    (64, 128),
    (128, 64),
]
MASKS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (70, 0)},
}
LENGTHS = [
    (1, 1),
    (7, 7),
    (63, 65),
    (64, 64),
    (65, 63),
    (127, 129),
    (129, 127),
    (1, 1000),
    (1000, 7),
    (64, 1000),
    (1000, 1000),
]
RATIOS = [1, 3, 4, 5, 7, 8, 16]


def shape_groups():
    for dims in HEAD_DIMS:
        for dtype in DTYPES:
            for name, mask in MASKS.items():
                cases = tuple(
                    AttentionCase(
                        dtype=dtype,
                        head_dim=dims[0],
                        head_dim_v=dims[1],
                        batch=1 + i % 3,
                        len_q=lengths[0],
                        len_kv=lengths[1],
                        heads=1 + i % 2,
                        heads_kv=1,
                        **mask,
                    )
                    for i, lengths in enumerate(LENGTHS)
                )
                yield CaseGroup(f"{dtype}-d{dims[0]}x{dims[1]}-{name}", cases)


@pytest.mark.parametrize("group", list(shape_groups()), ids=str)
def test_head_dims_and_lengths(group):
    group.check()


def ratio_groups():
    for heads_kv in (1, 2):
        for mask in MASKS:
            cases = tuple(
                AttentionCase(
                    len_q=65,
                    len_kv=100,
                    heads=ratio * heads_kv,
                    heads_kv=heads_kv,
                    batch=2,
                    **MASKS[mask],
                )
                for ratio in RATIOS
            )
            yield CaseGroup(f"kv{heads_kv}-{mask}", cases)


@pytest.mark.parametrize("group", list(ratio_groups()), ids=str)
def test_head_ratios(group):
    group.check()


WINDOWS = [
    (0, 0), (1, 0), (16, 0), (0, 5), (127, -1), (-1, 3), (3, 3), (63, 0), (64, 64),
    (1000, 1000), (5000, 0), (-1, 5000), (-1, 0), (0, -1), (2**31 - 1, 2**31 - 1),
]  # fmt: skip


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"window{left},{right}".replace(" ", "") + ("-causal" if causal else ""),
            tuple(
                AttentionCase(
                    window=(left, right), causal=causal, len_q=len_q, len_kv=len_kv, head_dim=dim
                )
                for len_q, len_kv, dim in [(200, 200, 64), (65, 300, 64), (130, 40, 40)]
            ),
        )
        for left, right in WINDOWS
        for causal in (False, True)
    ],
    ids=str,
)
def test_windows(group):
    group.check()


OPTIONS = {
    **OPTIONS,
    "all": {"softcap": 8.0, "alibi": "bh", "sinks": "bf16", "causal": True, "window": (40, 0)},
    "gpt-oss": {"sinks": "bf16", "window": (127, 0), "causal": True},
    "gemma": {"softcap": 50.0, "window": (100, 0), "causal": True, "scale": 144**-0.5},
}


@pytest.mark.parametrize(
    "group",
    [
        CaseGroup(
            f"{name}-{dtype}-d{dim}",
            tuple(
                AttentionCase(
                    dtype=dtype, head_dim=dim, batch=2, heads=6, heads_kv=2, len_q=sq, len_kv=sk,
                    **{"causal": causal, **options},
                )
                for sq, sk, causal in [(150, 150, False), (33, 257, True), (260, 129, True)]
            ),
        )
        for name, options in OPTIONS.items()
        for dtype in DTYPES
        for dim in (64, 128)
    ],
    ids=str,
)  # fmt: skip
def test_options(group):
    group.check()
