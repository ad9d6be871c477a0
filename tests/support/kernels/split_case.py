"""Attention with few queries: blocks share the keys of a tile. A tile of the portable kernel holds
the rows of all heads of a KV head.
"""

from __future__ import annotations

import dataclasses
import math

import grid
import pytest
import torch
from attention_case import OPTIONS, AttentionCase
from case_group import CaseGroup
from grid import sized
from storage import DEVICE, DTYPES, filled, randn

DIMS = [(64, 64), (72, 72), (128, 128), (192, 128), (256, 256)]
QUERIES = [1, 2, 3, 5, 16, 17]
RATIOS = [1, 4, 5, 6, 7, 12, 16]
MASKS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (600, 9)},
}

LEN_KV = sized(small=777, full=4099)
# One for warps that stream keys by themselves, one for a tile of 64 rows, one for Hopper's kernel.
SHAPES = {
    "decode": dict(len_q=2, heads=8, heads_kv=2, batch=2, len_kv=LEN_KV),
    "few": dict(len_q=5, heads=14, heads_kv=2, len_kv=LEN_KV),
}
if grid.arch().startswith("sm_90"):
    SHAPES["chunk"] = dict(len_q=70, head_dim=128, len_kv=sized(small=2100, full=9000))
each_split = pytest.mark.parametrize(
    "split",
    [AttentionCase(**shape) for shape in SHAPES.values()],
    ids=list(SHAPES),
)


@dataclasses.dataclass(frozen=True)
class SplitGroup(CaseGroup):
    """Cases that must split, or must not."""

    split: bool = True

    def check(self):
        for case in self.cases:
            explained = case.explain()
            # Calls that are computed as sequences have tiles that the device cuts.
            is_split = explained["splits"] > 1 or explained["spec"]["storage"] == "ragged"
            assert is_split == self.split, f"{case}: {explained['config']}"
            case.check()


def alternating_dtype(dim, mask_index):
    """Neighbours in the table of head dims and masks differ."""
    return ("f16", "bf16")[([d for d, _ in DIMS].index(dim) + mask_index) % 2]


def shape_groups(lengths, split):
    """Every head dim with every mask; in each a part of all numbers of queries and head ratios."""
    for at, (dim, dim_v) in enumerate(DIMS):
        for kind, (mask, options) in enumerate(MASKS.items()):
            dtype = alternating_dtype(dim, kind)
            shapes = [
                (len_q, ratio)
                for i, len_q in enumerate(QUERIES)
                for j, ratio in enumerate(RATIOS)
                if (i + j + at + kind) % 7 == 0
                and (split or len_q * ratio <= 64)  # more rows are another kernel's
            ]
            cases = tuple(
                AttentionCase(
                    dtype=dtype, head_dim=dim, head_dim_v=dim_v, len_q=len_q,
                    len_kv=lengths[i % len(lengths)], batch=1 + i % 2,
                    heads=ratio * (1 + i // 2 % 2), heads_kv=1 + i // 2 % 2, **options,
                )
                for i, (len_q, ratio) in enumerate(shapes)
            )  # fmt: skip
            yield SplitGroup(f"{dtype}-d{dim}x{dim_v}-{mask}", cases, split)


# Few queries and some more; each with KV heads, a head ratio and a mask.
OPTION_SHAPES = [
    dict(len_q=1, heads=8, heads_kv=2, batch=2),
    dict(len_q=5, heads=6, heads_kv=1, causal=True),
]
OPTIONS = {
    **OPTIONS,
    "all": {"softcap": 8.0, "alibi": "bh", "sinks": "bf16", "causal": True, "window": (600, 0)},
    "gpt-oss": {"sinks": "bf16", "window": (600, 0), "causal": True},
}


def compiled_in(options):
    """What of the options is no argument but another kernel."""
    dtype = "bf16" if options.get("sinks") == "bf16" else "f32"
    return dtype, *(name for name in options if name not in ("scale", "magnitude"))


def option_groups(dims, lengths):
    """dtypes and `dims` take turns from kernel to kernel."""
    kernels = list(dict.fromkeys(compiled_in(options) for options in OPTIONS.values()))
    for name, options in OPTIONS.items():
        i = kernels.index(compiled_in(options))
        cases = tuple(
            AttentionCase(
                dtype=("f16", "bf16")[i % 2], head_dim=dims[i % len(dims)], len_kv=len_kv,
                **{**shape, **options},
            )
            for shape in OPTION_SHAPES
            for len_kv in lengths
        )  # fmt: skip
        yield SplitGroup(name, cases)


STORAGES = ["plain", "guarded", "permuted", "head_slice", "offset", "odd"]


def storage_groups(layout, dim, len_kv):
    for i, storage in enumerate(STORAGES):
        cases = tuple(
            AttentionCase(
                layout=layout, storage=storage, out_storage=out, head_dim=dim,
                len_q=(3, 9)[(i + j) % 2], len_kv=len_kv, batch=2, heads=8, heads_kv=2,
                causal=True, dtype=alternating_dtype(dim, 1),
            )
            for j, out in enumerate(STORAGES)
        )  # fmt: skip
        yield SplitGroup(f"{layout}-{storage}-d{dim}", cases)


# What is left of the keys for a split, and of the queries for a tile.
EDGES = {
    "one-key-for-the-last-split": AttentionCase(len_q=1, heads=4, len_kv=257),
    "no-key-for-the-last-splits": AttentionCase(len_q=1, heads=4, len_kv=1100),
    "no-key-for-the-last-splits-sinks": AttentionCase(len_q=2, heads=4, len_kv=1100, sinks="f32"),
    "as-many-splits-as-there-can-be": AttentionCase(head_dim=128, len_q=1, heads=3, len_kv=9000),
    "a-window-to-the-end": AttentionCase(len_q=16, heads=1, len_kv=1000, window=(600, -1)),
    "a-window-to-the-end-few": AttentionCase(len_q=17, heads=3, len_kv=1000, window=(600, -1)),
    "a-window-of-the-last-keys": AttentionCase(len_q=1, heads=16, len_kv=1000, window=(299, 0)),
    "a-window-for-each-row": AttentionCase(len_q=700, heads=1, len_kv=900, window=(512, 3)),
    "leading-rows-empty": AttentionCase(len_q=700, heads=1, len_kv=520, causal=True),
    "leading-rows-empty-grouped": AttentionCase(len_q=700, heads=3, len_kv=520, causal=True),
    "leading-rows-empty-sinks": AttentionCase(len_q=700, len_kv=520, causal=True, sinks="f32"),
    "only-the-last-rows-see": AttentionCase(len_q=700, heads=1, len_kv=530, window=(3, -1)),
    "a-chunk-of-few-tiles": AttentionCase(len_q=300, heads=1, len_kv=1500, causal=True),
}


def edge_groups(**replacements):
    for name, case in EDGES.items():
        yield SplitGroup(name, (dataclasses.replace(case, **replacements),))


UNSPLIT_EDGES = {
    "no-keys": AttentionCase(len_q=1, len_kv=0),
    "no-keys-causal": AttentionCase(len_q=5, len_kv=0, causal=True),
    "no-keys-all-options": AttentionCase(
        len_q=7, len_kv=0, softcap=5.0, alibi="h", sinks="f32", window=(3, 3)
    ),
    "one-key": AttentionCase(len_q=1, heads=5, len_kv=1),
    "one-key-leading-rows-empty": AttentionCase(len_q=9, len_kv=1, causal=True),
    "leading-rows-empty": AttentionCase(len_q=16, heads=1, len_kv=7, causal=True),
    "leading-rows-empty-sinks": AttentionCase(
        len_q=16, heads=4, len_kv=7, causal=True, sinks="f32"
    ),
    "one-row-beyond-a-tile": AttentionCase(len_q=17, heads=1, len_kv=100),
    "no-queries": AttentionCase(len_q=0, len_kv=1000),
    "no-batch": AttentionCase(len_q=1, len_kv=1000, batch=0),
}


def unsplit_edge_groups():
    for name, case in UNSPLIT_EDGES.items():
        yield CaseGroup(name, (case,))


PEAKS = {
    "full": ({}, ["edges", "first", "last"]),
    "causal": ({"causal": True}, ["edges", "diagonal", "beyond"]),
    "window": ({"window": (600, 0)}, ["edges", "left_edge", "beyond_left", "diagonal", "beyond"]),
    "two-sided": ({"window": (600, 2)}, ["edges", "left_edge", "beyond_left", "beyond"]),
}


def peak_groups(dims, len_kv):
    """Enough rows that each edge of 16 keys is the peak of one."""
    rows = -(-len_kv // 8)
    for dim in dims:
        for kind, (mask, (options, peaks)) in enumerate(PEAKS.items()):
            dtype = alternating_dtype(dim, min(kind, 2))
            cases = tuple(
                AttentionCase(
                    dtype=dtype, head_dim=dim, scale=1.0, peak=peak, len_q=len_q, heads=heads,
                    heads_kv=heads_kv, len_kv=len_kv, **options,
                    batch=-(-rows // (len_q * heads)) if peak == "edges" else 1,
                )
                for len_q, heads, heads_kv in [(4, 8, 2), (9, 14, 2)]
                for peak in peaks
            )  # fmt: skip
            yield SplitGroup(f"{dtype}-d{dim}-{mask}", cases)


def spelled_keys(out):
    """The key that each row of `out` looked at, by the signs that peaked values spell it with."""
    bits = (out[..., :16] > 0).long()
    return (bits << torch.arange(16, device=out.device)).sum(-1)


@dataclasses.dataclass(frozen=True)
class ClimbCase(AttentionCase):
    """Logits whose maximum changes by a factor of 2^`growth` from one run of `period` keys to the
    next: the kernel keeps an old maximum while it is at most 2^8 too small.
    """

    growth: float = 0.0  # either sign
    period: int = 64
    jumps: bool = False  # every second run stays as low as the first

    def inputs(self, seed=0):
        dtype = DTYPES[self.dtype]
        kv = torch.arange(self.len_kv, device=DEVICE)
        level = kv // self.period
        if self.growth < 0:
            level = int(level[-1]) - level
        if self.jumps:
            level = level * (level % 2)
        rest = -(kv * 5 % 8) / 64.0  # 0 somewhere in every 8 keys
        k = torch.zeros(self.shaped(self.len_kv, self.heads_kv, self.head_dim), device=DEVICE)
        rows = k if self.layout == "bshd" else k.transpose(1, 2)
        rows[..., 0], rows[..., 1] = level[None, :, None], rest[None, :, None]
        q = torch.zeros(self.shaped(self.len_q, self.heads, self.head_dim), device=DEVICE)
        q[..., :2] = 1.0
        v = randn(k.shape, dtype, seed + 3)
        return [filled(self.storage, x) for x in (q.to(dtype), k.to(dtype), v)]

    def options(self):
        return {**super().options(), "scale": abs(self.growth) * math.log(2)}


def climb_groups(kinds, len_kv, shapes, periods):
    """`kinds` are (dtype, head dim). A warp's next tile comes 64 or 128 keys later."""
    for dtype, dim in kinds:
        for name, shape in shapes.items():
            for growth in (7.9, 8.1, 200.0):
                cases = tuple(
                    ClimbCase(
                        dtype=dtype, head_dim=dim, len_kv=len_kv, growth=sign * growth,
                        period=period, jumps=jumps, **shape,
                    )
                    for sign in (1, -1)
                    for period in periods
                    for jumps in (False, True)
                )  # fmt: skip
                yield CaseGroup(f"{dtype}-d{dim}-{name}-{growth}", cases)
