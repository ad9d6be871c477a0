"""Hopper's tiles of 192 rows, which three math warpgroups compute, where blocks share the keys of a
tile and where tiles have rows of all heads that share a KV head."""

import grid
import kiln
import pytest
from attention_case import OPTIONS, AttentionCase
from varlen_case import VarlenCase

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

# Twelve tiles of four heads. The bound of keys makes the host cut them.
MANY = dict(lens_q=(48, 41, 48, 0, 33, 48, 20), lens_k=(700, 90, 1300, 50, 33, 0, 400),
            heads=8, heads_kv=2, head_dim=128, page=64)  # fmt: skip
ONE = dict(MANY, lens_q=(281,), lens_k=(1100,))
BOUND = 60000
SHARED = {
    "page-64": MANY,
    "page-48": dict(MANY, page=48),
    "page-16": dict(ONE, page=16),
    "page-8": dict(ONE, page=8),
    "page-1": dict(MANY, page=1, following=150),
    # One sequence of many rows alone: the few keys of mixed ones are served by tiles of 128 rows.
    "packed-f16": dict(MANY, lens_q=(480, 10), lens_k=(1300, 90), keys="packed",
                       dtype="f16"),
    "one": ONE,
    "one-full": dict(ONE, causal=False, keys="packed"),
    "window": dict(MANY, window=(50000, 3)),
    "flags": dict(MANY, causal=(True, False) * 3 + (True,)),
    "three-heads": dict(ONE, lens_q=(250,), heads=12, heads_kv=4),
    "one-head": dict(ONE, lens_q=(380, 150), lens_k=(900, 300), heads=6, heads_kv=6),
    "d72": dict(MANY, head_dim=72),
    "d104x128": dict(ONE, head_dim=104, head_dim_v=128, keys="packed"),
    "d64": dict(MANY, head_dim=64),
    "d64-page-1": dict(MANY, head_dim=64, page=1),
    "d64-packed": dict(ONE, head_dim=64, keys="packed", dtype="f16"),
    "d96-window": dict(MANY, head_dim=96, window=(50000, 3)),
    # More tiles than multiprocessors: all are laid end to end.
    "end-to-end": dict(
        head_dim=8, page=64, lens_q=(65,) * 136 + (130,), heads=2, heads_kv=1,
        lens_k=(*(1300 if b % 8 == 3 else 65 + 9 * b % 50 for b in range(136)), 900)),
    "sinks": dict(MANY, sinks="f16"),
    "alibi": dict(MANY, lens_q=(190,) * 7, alibi="h"),
    "negative-scale": dict(MANY, **OPTIONS["scale-negative"]),
    "peaked": dict(ONE, peak="edges", scale=1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_shared_tiles(name):
    case = VarlenCase(**SHARED[name])
    call = case.call(given := case.inputs())
    call.keywords.update(max_seqlen_k=BOUND)
    wide = "192x80x3" if case.keys == "paged" else "192x80x2"
    tile = wide if case.head_dim > 64 else "192x128x2"
    assert call.explain()["config"] == f"{tile} split"
    call.run()
    call.judge(given)


@pytest.mark.parametrize(
    "options",
    [dict(softcap=3.0), dict(head_dim=256), dict(head_dim=64, window=(50000, 3))],
    ids=str,
)
def test_others_share_tiles_of_128_rows(options):
    """Code at every logit, wide heads, and windows of narrow ones have no registers for more."""
    case = VarlenCase(**{**ONE, **options})
    call = case.call(given := case.inputs())
    call.keywords.update(max_seqlen_k=BOUND)
    assert call.explain()["config"].startswith("128x")
    call.run()
    call.judge(given)


WHOLE = {
    "page-64": dict(lens_q=(40, 36, 48), lens_k=(700, 90, 600)),
    "packed": dict(lens_q=(40,), lens_k=(900,), keys="packed"),
    "window": dict(lens_q=(40, 37), lens_k=(900, 30), window=(600, 0)),
    "d64": dict(lens_q=(40, 36), lens_k=(700, 90), head_dim=64),
    "d64-page-1": dict(lens_q=(40,), lens_k=(640,), head_dim=64, page=1),
    "sinks": dict(lens_q=(45,), lens_k=(800,), sinks="bf16", dtype="f16"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_tiles_of_grouped_heads(name):
    case = VarlenCase(**{**dict(head_dim=128, page=64, heads=4, heads_kv=1), **WHOLE[name]})
    call = case.call(given := case.inputs())
    keys = 80 if case.head_dim > 64 else 128
    assert call.explain()["config"] == f"192x{keys}x3 grouped"
    call.run()
    call.judge(given)


DENSE = {
    "causal": dict(causal=True),
    "full-bhsd": dict(layout="bhsd"),
    "two-entries-f16": dict(batch=2, len_q=17, len_kv=20000, causal=True, dtype="f16"),
}
FEW = dict(len_q=20, len_kv=30000, heads=8, heads_kv=1, head_dim=16)


@pytest.mark.emulated  # rounds are of its 132 multiprocessors
@pytest.mark.parametrize("name", DENSE)
def test_dense_calls_of_few_queries_are_sequences_of_one_length(name):
    """Where query heads share keys, which are many: 32 of 64k keys, 8 heads, take 33 us on an H200,
    as tiles of one head each 49 us."""
    case = AttentionCase(**{**FEW, **DENSE[name]})
    explained = case.explain()
    assert explained["spec"]["storage"] == "ragged", explained
    assert explained["config"].endswith("split")
    assert any("sequences of one length" in reason for reason in explained["why"])
    case.check()


@pytest.mark.parametrize(
    "options",
    [dict(heads_kv=8), dict(len_kv=7000), dict(len_q=8000), dict(softcap=3.0), dict(sinks="f32"),
     dict(window=(20000, 0))],
    ids=str,
)  # fmt: skip
def test_other_dense_calls_are_none(options):
    """One query head of each KV head, few keys, many queries, or arguments of an option."""
    explained = AttentionCase(**{**FEW, "causal": True, **options}).explain()
    assert explained["spec"]["storage"] == "dense", explained


def test_kernels_of_dense_calls_are_listed():
    """Prewarming a dense call's kernels includes those for few queries of grouped heads."""
    shape = {**FEW, "head_dim": 128, "causal": True}
    dense, few = (
        AttentionCase(**{**shape, "len_kv": len_kv}).explain()["spec"] for len_kv in (700, 65536)
    )
    assert (dense["storage"], few["storage"]) == ("dense", "ragged")
    traits = {name: dense[name] for name in ("op", "dtype", "head_dim", "mask")}
    report = kiln.prewarm(traits, "sm_90a", check=True)
    assert few in [kernel["spec"] for kernel in report["kernels"]]
