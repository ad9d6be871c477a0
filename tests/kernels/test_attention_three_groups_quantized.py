"""Hopper's tiles of 192 rows over quantised caches of narrow heads: three math warpgroups beside
the one that widens the bytes."""

import grid
import pytest
from varlen_case import VarlenCase

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

COMMON = dict(head_dim=64, heads=8, heads_kv=2, page=64, stored="e4m3", scales="sequences")
WHOLE = {
    "e4m3": dict(lens_q=(250, 0, 193), lens_k=(900, 5, 193)),
    "e5m2-f16": dict(lens_q=(40, 193), lens_k=(97, 500), stored="e5m2", dtype="f16"),
    "int8-page-7": dict(lens_q=(200,), lens_k=(600,), stored="int8", page=7),
    "window": dict(lens_q=(400,), lens_k=(1300,), window=(100, 3)),
    "flags": dict(lens_q=(70, 200), lens_k=(300, 700), causal=(True, False)),
    "sinks": dict(lens_q=(200,), lens_k=(700,), sinks="bf16"),
    "d48x16-cache": dict(lens_q=(200,), lens_k=(700,), head_dim=48, head_dim_v=16, keys="cache"),
    "packed": dict(lens_q=(130, 260), lens_k=(130, 900), keys="packed"),
    "negative-scale": dict(lens_q=(200,), lens_k=(700,), scale=-0.2, scales="heads"),
    "peaked": dict(lens_q=(200,), lens_k=(700,), peak="edges", scale=1.0, scales="one"),
}


def check(options, config, **keywords):
    case = VarlenCase(**{**COMMON, **options})
    call = case.call(given := case.inputs())
    call.keywords.update(keywords)
    assert call.explain()["config"] == config
    call.run()
    call.judge(given)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_tiles(name):
    """Without splits, calls of any lengths have the tiles of many keys."""
    check(WHOLE[name], "192x96x3", num_splits=1)


FEW = dict(lens_q=(48, 41, 48, 0, 33, 48, 20), lens_k=(700, 90, 1300, 50, 33, 0, 400))
GROUPED = {
    "e4m3": dict(lens_q=(40, 36, 48), lens_k=(700, 90, 600)),
    "int8-page-1": dict(lens_q=(40,), lens_k=(640,), stored="int8", page=1),
    "e5m2-window": dict(lens_q=(40, 37), lens_k=(900, 30), window=(600, 0), stored="e5m2"),
    "d32x64-packed-f16": dict(lens_q=(45,), lens_k=(800,), head_dim=32, head_dim_v=64,
                              keys="packed", dtype="f16"),
    # 190 of a tile's rows are copied: those behind them are cleared, as all rows are scaled.
    "five-heads": dict(lens_q=(38, 70), lens_k=(700, 300), heads=5),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPED)
def test_whole_tiles_of_grouped_heads(name):
    check({"heads": 4, "heads_kv": 1, **GROUPED[name]}, "192x96x3 grouped")


SHARED = {
    "e4m3": FEW,
    "int8-page-16": dict(lens_q=(281,), lens_k=(1100,), stored="int8", page=16),
    "e5m2-packed": dict(lens_q=(281,), lens_k=(1100,), stored="e5m2", keys="packed"),
    "full-f16": dict(lens_q=(281,), lens_k=(1100,), causal=False, dtype="f16"),
    "one-head": dict(lens_q=(380, 150), lens_k=(900, 300), heads=6, heads_kv=6),
    "five-heads": dict(lens_q=(190,), lens_k=(1500,), heads=10, heads_kv=2),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_tiles(name):
    """The bound of keys makes the host cut them."""
    check(SHARED[name], "192x96x3 split", max_seqlen_k=60000)


OTHERS = {
    "code at every logit": dict(softcap=3.0),
    "wider heads": dict(head_dim=80),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_have_tiles_of_128_rows(name):
    """They have no registers for three warpgroups, of 136 each."""
    case = VarlenCase(**{**COMMON, **WHOLE["e4m3"], **OTHERS[name]})
    call = case.call(given := case.inputs())
    assert call.explain()["config"].startswith("128x")
    call.run()
    call.judge(given)
