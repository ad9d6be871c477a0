"""Hopper's attention over sequences of few queries: tiles that have rows of all heads that share a
KV head, whole or of which several blocks have some keys."""

import grid
import pytest
from attention_case import OPTIONS
from grid import sized
from varlen_case import VarlenCase

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

# Tiles of fewer than 1280 keys stay whole.
WHOLE = {
    "2-heads": dict(lens_q=(35, 40), lens_k=(150, 300), heads=4, heads_kv=2),
    "4-heads-packed": dict(lens_q=(33, 20), lens_k=(200, 90), heads=4, heads_kv=1, keys="packed"),
    "8-heads": dict(lens_q=(17,), lens_k=(260,), heads=16, heads_kv=2, page=64),
    "3-heads": dict(lens_q=(43, 60), lens_k=(190, 61), heads=3, heads_kv=1, page=16),
    "5-heads": dict(lens_q=(43, 60), lens_k=(190, 61), heads=5, heads_kv=1, page=16),
    "12-heads": dict(lens_q=(11, 25), lens_k=(130, 25), heads=12, heads_kv=1, dtype="f16"),
    "d64-window": dict(head_dim=64, lens_q=(30,), lens_k=(400,), heads=4, heads_kv=1,
                       window=(70, 2), page=64),
    "full": dict(lens_q=(40,), lens_k=(140,), heads=4, heads_kv=1, causal=False, keys="packed"),
    "more-queries-than-keys": dict(lens_q=(30, 29), lens_k=(20, 17), heads=4, heads_kv=1, page=64),
}  # fmt: skip
SHARED = {
    "2-heads": dict(lens_q=(70, 60), lens_k=(21000, 1500), heads=4, heads_kv=2, page=64),
    "8-heads-many-splits": dict(head_dim=64, lens_q=(17,), lens_k=(30000,), heads=8, heads_kv=1,
                                page=64),
    "6-heads-packed": dict(head_dim=64, lens_q=(21, 22), lens_k=(16000, 700), heads=6, heads_kv=1,
                           keys="packed"),
    "window": dict(head_dim=64, lens_q=(20, 30), lens_k=(9000, 17000), heads=8, heads_kv=1,
                   window=(16000, 0), page=64),
    "kvcache": dict(head_dim=64, op="kvcache", lens_q=(20, 20), lens_k=(17000, 900), heads=8,
                    heads_kv=1, page=64),
    "e4m3": dict(head_dim=64, lens_q=(20,), lens_k=(14000,), heads=8, heads_kv=1, stored="e4m3",
                 scales="heads", page=16),
    "bytes": dict(head_dim=128, lens_q=(20,), lens_k=(14000,), heads=8, heads_kv=1, stored="e4m3",
                  byte_queries=True, page=64),
}  # fmt: skip


def explained_after_check(**shape):
    case = VarlenCase(**{**dict(head_dim=128, page=64), **shape})
    call = case.call(given := case.inputs())
    explained = call.explain()
    call.run()
    call.judge(given)
    assert explained["path"] == "sm_90a", explained
    return explained


@pytest.mark.parametrize("name", WHOLE)
def test_whole_tiles(name):
    assert explained_after_check(**WHOLE[name])["config"].endswith("grouped")


@pytest.mark.parametrize("name", SHARED)
def test_shared_tiles(name):
    assert explained_after_check(**SHARED[name])["config"].endswith("split")


@pytest.mark.parametrize("head_dim", [64, 256])
def test_rows_that_the_heads_leave_over(head_dim):
    """Twelve heads have ten queries in a tile, whose last eight rows no copy fills. The warps that
    bring bfloat16 queries into f16 read all rows."""
    case = VarlenCase(head_dim=head_dim, lens_q=(30,), lens_k=(70,), heads=12, heads_kv=1,
                      stored="int8", scales="heads", page=64)  # fmt: skip
    call = case.call(given := case.inputs())
    call.keywords.update(max_seqlen_q=104, max_seqlen_k=30000)
    assert call.explain()["config"].endswith("split")
    call.run()
    call.judge(given)


@pytest.mark.parametrize("name", ["softcap", "sinks-f16", "scale-negative"])
def test_options(name):
    """Sinks and the LSE are of the row's head."""
    options = OPTIONS[name]
    shape = dict(lens_q=(20, 30), lens_k=(150, 300), heads=8, heads_kv=2)
    assert explained_after_check(**shape, **options)["config"].endswith("grouped")
    shape = dict(lens_q=(20,), lens_k=(13000,), heads=8, heads_kv=1, head_dim=64)
    assert explained_after_check(**shape, **options)["config"].endswith("split")


def test_slopes_are_of_one_head():
    """ALiBi's tilt is that of a tile, whose rows are then of one head."""
    explained = explained_after_check(
        lens_q=(40,), lens_k=(200,), heads=4, heads_kv=1, **OPTIONS["alibi"]
    )
    assert "grouped" not in explained["config"]


def test_many_queries_and_one_split_keep_tiles_of_one_head():
    few = dict(lens_q=(40,), lens_k=(200,), heads=4, heads_kv=1)
    many = sized(small=(256,), full=(4096,))
    for shape in (dict(few, num_splits=1), dict(few, lens_q=many, lens_k=many)):
        assert "grouped" not in explained_after_check(**shape)["config"]
