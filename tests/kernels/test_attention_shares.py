"""Hopper's attention over sequences that have lengths of their own and too few query tiles for all
multiprocessors: blocks that have equal shares of all keys, and tiles of which several have some."""

import dataclasses
import itertools
import math

import grid
import kiln
import pytest
import torch
from attention_case import OPTIONS
from grid import sized
from storage import DEVICE, leave_in_free_memory
from varlen_case import VarlenCase, integers

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

# The host knows how the tiles of one sequence are cut.
ONE = dict(lens_q=(70,), lens_k=(1500,), heads=2, heads_kv=1)
TWO = dict(lens_q=(70, 66), lens_k=(1500, 700))
SHAPES = {
    "d64": dict(TWO, head_dim=64, keys="paged", page=64),
    "alone-d64": dict(head_dim=64, keys="paged", page=64),
    "d128-packed": dict(head_dim=128, keys="packed", dtype="f16"),
    "d128-rows-of-192": dict(head_dim=128, lens_q=(190,), keys="packed", heads=2),
    "d128-boxes": dict(head_dim=128, page=64),
    "d128-gathered-values": dict(head_dim=128, page=16, dtype="f16"),
    "d128-gathered": dict(head_dim=128, page=1),
    "d192x128": dict(head_dim=192, head_dim_v=128, keys="cache"),
    "d256": dict(head_dim=256, page=32),
    "d72x104": dict(head_dim=72, head_dim_v=104, page=64),
    "full": dict(TWO, head_dim=128, causal=False, heads=4, heads_kv=2, page=64),
    "alone-full": dict(head_dim=128, causal=False, heads=4, heads_kv=2, page=64),
    # Tiles of one head cost a step more than the one before each, and some are not cut.
    "several-tiles": dict(head_dim=128, lens_q=(390, 1), lens_k=(1290, 1), heads=1),
    "alone-several-tiles": dict(head_dim=128, lens_q=(390,), lens_k=(1290,), heads=2),
    "window": dict(head_dim=128, lens_q=(140, 66), lens_k=(2200, 80), window=(1500, 3), page=64),
    "alone-window": dict(head_dim=128, lens_q=(140,), lens_k=(2200,), window=(1500, 3), page=64),
    # Cuts of the first two lie in the third's CTA; the others have no keys, no queries, few rows.
    "uneven": dict(head_dim=128, lens_q=(70, 129, 0, 66, 1, 130), page=64,
                   lens_k=(1400, 200, 50, 0, 300, 130), heads=2),
    "more-than-32-sequences": dict(
        head_dim=64, lens_q=(0,) * 33 + (66,) + (0,) * 31 + (67, 65),
        lens_k=(5,) * 33 + (700,) + (9,) * 31 + (1400, 70), heads=1, heads_kv=1),
    # More tiles than multiprocessors, of 128 rows: all are laid end to end.
    "equal-shares": dict(
        head_dim=8, page=64, lens_q=(65,) * 68 + (130,), loose=3000, softcap=3.0,
        lens_k=(*(1300 if b % 8 == 3 else 65 + 9 * b % 50 for b in range(68)), 900)),
    # Shares of 12 steps: one has the end of the last sequence's first tile and some of its second.
    "two-cut-tiles-of-a-share": dict(
        head_dim=8, page=64, lens_q=(65,) * 67, softcap=3.0, loose=20000,
        lens_k=(*(1000,) * 62, *(890,) * 4, 3000)),
    "kvcache": dict(head_dim=128, op="kvcache", lens_q=(70, 70), lens_k=(1300, 700), page=64),
    "lists": dict(head_dim=128, keys="lists", page=16),
    "leftpad": dict(head_dim=128, op="kvcache", keys="cache", leftpad=(37,)),
}  # fmt: skip
QUANTIZED = {
    "e4m3": dict(head_dim=128, stored="e4m3", scales="heads", page=16),
    "e5m2-f16": dict(head_dim=64, stored="e5m2", dtype="f16", keys="packed", scales="one"),
    "int8-code-at-every-logit": dict(head_dim=128, stored="int8", scales="bh", softcap=3.0,
                                     alibi="h", page=64),
    "bytes": dict(head_dim=128, stored="e4m3", byte_queries=True, scales="heads", page=64),
    "bytes-d256": dict(head_dim=256, stored="e4m3", byte_queries=True, keys="packed"),
    "d256": dict(head_dim=256, stored="e4m3", scales="heads", page=64),
    "uneven": dict(head_dim=64, lens_q=(70, 129, 66), lens_k=(1400, 200, 300), stored="e4m3",
                   scales="bh", page=1),
}  # fmt: skip
FULL_SHAPES = {
    "chunk": dict(head_dim=128, lens_q=(512,), lens_k=(30000,), heads=8, page=64),
    "chunks": dict(head_dim=128, lens_q=(512, 300, 17, 2048), lens_k=(20000, 9000, 5000, 2048),
                   heads=8, page=16),
    "few-rows": dict(head_dim=64, lens_q=(9,), lens_k=(50000,), heads=8, page=64),
    "narrow": dict(head_dim=128, lens_q=(2600,), lens_k=(2700,), heads=2, window=(1300, 0)),
    "many-cuts": dict(head_dim=128, lens_q=(129,), lens_k=(100000,), heads=1, page=64),
    # Tiles that no equal pieces deal to all multiprocessors.
    "72-tiles": dict(head_dim=128, lens_q=(700,), lens_k=(20000,), heads=12, heads_kv=2, page=64),
    "rows-of-192": dict(head_dim=128, lens_q=(1100,), lens_k=(20000,), heads=12, heads_kv=2,
                        keys="packed"),
    "66-sequences": dict(head_dim=128, lens_q=tuple(range(64, 130)), heads=2, loose=3000,
                         lens_k=tuple(range(1300, 7900, 100)), page=64),
}  # fmt: skip


def case_of(**shape):
    return VarlenCase(**{**ONE, **shape})


def check(case):
    call = case.call(given := case.inputs())
    explained = call.explain()
    assert explained["path"] == "sm_90a" and explained["config"].endswith("split"), explained
    call.run()
    call.judge(given)


@pytest.mark.parametrize("name", [*SHAPES, *sized(small=[], full=[*FULL_SHAPES])])
def test_shapes(name):
    check(case_of(**{**SHAPES, **FULL_SHAPES}[name]))


@pytest.mark.emulated  # a round is of its 132 multiprocessors
@pytest.mark.parametrize(
    "lens_q, splits", [((512, 300, 17, 1700), True), ((719, 719, 719, 719), False)]
)
def test_tiles_of_one_round_are_cut_where_lengths_differ(lens_q, splits):
    """The longest tile of a round decides its time, and others may be much shorter."""
    case = case_of(head_dim=128, lens_q=lens_q, lens_k=(5000,) * 4, heads=8, heads_kv=8, page=16)
    call = case.call(case.inputs())
    assert call.explain()["config"].endswith("split") == splits


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_caches(name):
    """The scale of values belongs to what has been joined."""
    check(case_of(**QUANTIZED[name]))


FEW_OPTIONS = {"softcap", "alibi", "sinks-f16", "scale-negative", "alibi-softcap"}


@pytest.mark.parametrize(
    "name", [name for name in OPTIONS if name in FEW_OPTIONS or grid.is_full()]
)
def test_options(name):
    """Sinks count once, whoever joins; tilted logits are walked from the last key back."""
    dims = (64, 128)
    shape = dict(head_dim=dims[len(name) % 2], page=64, lens_k=(1300,), loose=100)
    check(case_of(**shape, **OPTIONS[name]))


@pytest.mark.parametrize("lens_k", [(1500,), (300,), (0,)])
@pytest.mark.parametrize("most", [dict(max_seqlen_q=20), dict(max_seqlen_k=30000)], ids=str)
def test_one_sequence_of_other_lengths_than_the_bounds_say(lens_k, most):
    """Tiles behind the bound of queries are whole; fewer keys are cut for fewer blocks."""
    case = case_of(head_dim=64, lens_q=(140,), lens_k=lens_k, heads=4, page=64)
    call = case.call(given := case.inputs())
    call.keywords.update(dict(max_seqlen_k=1500) | most)
    assert call.explain()["config"].endswith("split")
    call.run()
    call.judge(given)


@pytest.mark.emulated  # rounds are of its 132 multiprocessors
def test_a_tile_behind_the_bound_is_not_cut_for_blocks_that_are_missing():
    """The only tile that fills no round may have 131 pieces, which leaves one block for the next
    one, of queries behind the bound."""
    case = case_of(head_dim=8, lens_q=(129,), lens_k=(400,), heads=133, heads_kv=133, causal=False,
                   keys="packed")  # fmt: skip
    call = case.call(given := case.inputs())
    call.keywords.update(max_seqlen_q=100, max_seqlen_k=50000)
    assert call.explain()["config"].endswith("split")
    call.run()
    call.judge(given)


@pytest.mark.parametrize("options", [dict(keys="packed"), dict(page=16, causal=False)], ids=str)
def test_tiles_that_fill_a_round_stay_whole(options):
    """132 of 138 tiles of 192 rows are whole, and all blocks share the keys of the others."""
    case = case_of(
        **{**dict(head_dim=8, lens_q=(570,), lens_k=(900,), heads=46, heads_kv=46), **options}
    )
    call = case.call(given := case.inputs())
    call.keywords.update(max_seqlen_k=30000)
    config = call.explain()["config"]
    assert config.startswith("192x") and config.endswith("split"), config
    call.run()
    call.judge(given)


def test_flags_of_sequences():
    check(case_of(lens_q=(70, 65), lens_k=(1300, 600), causal=(True, False), page=64))


REPEATED = {
    "paged": case_of(head_dim=128, page=64, lens_q=(70, 150), lens_k=(1500, 400)),
    "packed": case_of(head_dim=128, keys="packed", lens_q=(190, 70), lens_k=(1300, 900)),
}


def test_other_sequences_decide_where_keys_are_cut():
    """The cuts of the first one move, its result is right wherever they are."""
    for keys in range(0, 1300, sized(small=433, full=37)):
        check(case_of(head_dim=64, lens_q=(70, 70), lens_k=(1290, keys), page=64))


# Batch, queries, keys, heads, KV heads.
SHARED = [(1, 512, 65536, 8, 1), (1, 700, 50000, 12, 2), (1, 2200, 65536, 8, 1),
          (1, 2048, 65536, 32, 8), (5, 70, 1300, 8, 2)]  # fmt: skip
WHOLE = [(16, 1024, 1024, 32, 8), (1, 16384, 16384, 8, 1), (5, 700, 9000, 32, 8),
         (1, 4096, 4096, 8, 1), (1, 512, 1200, 8, 1)]  # fmt: skip


@pytest.mark.parametrize("shape", [*SHARED, *WHOLE], ids=str)
def test_tiles_that_fill_the_gpu_stay_whole(shape):
    batch, len_q, len_k, heads, heads_kv = shape
    q = torch.empty([batch, len_q, heads, 128], dtype=torch.bfloat16, device=DEVICE)
    k = torch.empty([batch, len_k, heads_kv, 128], dtype=torch.bfloat16, device=DEVICE)
    options = dict(cache_seqlens=integers([len_k] * batch), causal=True)
    explained = kiln.explain("flash_attention_with_kvcache", q, k, k, **options)
    assert explained["path"] == "sm_90a"
    assert explained["config"].endswith("split") == (shape in SHARED)
    explained = kiln.explain("flash_attention_with_kvcache", q, k, k, **options, num_splits=1)
    assert not explained["config"].endswith("split")


# Queries and keys of each sequence, heads, KV heads, and whether blocks share keys. Where tiles are
# few for all that the longest one takes, they should: without, these take 1.1 to 2.4 times as long.
MIXED = {
    "many-keys": ((395, 239, 104, 2190), (3255, 15402, 104, 2190), 32, 8, True),
    "few-heads": ((1024,) * 3, (1024, 45762, 1024), 8, 1, True),
    "chunks": ((512,) * 3, (10067, 42183, 1059), 32, 8, True),
    "chunks-of-most-multiprocessors": ((1024,) * 4, (4473, 14565, 1024, 5997), 32, 8, False),
    "many-queries": ((2655, 184, 884), (4150, 9823, 23952), 40, 8, False),
    "many-tiles": ((700, 2000, 300), (40000, 20000, 60000), 32, 8, False),
}


@pytest.mark.emulated  # its 132 multiprocessors decide
@pytest.mark.parametrize("name", MIXED)
def test_few_tiles_of_mixed_sequences_share_keys(name):
    lens_q, lens_k, heads, heads_kv, are_shared = MIXED[name]
    q = torch.empty([sum(lens_q), heads, 128], dtype=torch.bfloat16, device=DEVICE)
    k = torch.empty([sum(lens_k), heads_kv, 128], dtype=torch.bfloat16, device=DEVICE)
    starts = [integers(list(itertools.accumulate(x, initial=0))) for x in (lens_q, lens_k)]
    explained = kiln.explain(
        "flash_attention_varlen", q, k, k, cu_seqlens_q=starts[0], cu_seqlens_k=starts[1],
        max_seqlen_q=max(lens_q), max_seqlen_k=max(lens_k), causal=True)  # fmt: skip
    assert explained["config"].endswith("split") == are_shared


SHORT = dict(lens_k=(9000,) * 16, page=64, head_dim=128)
LAUNCHES = {
    # All have as many rows: up to 32 are decoded, and 64 where nothing else serves them.
    "32-rows": (dict(SHORT, lens_q=(8,) * 16, heads=8, heads_kv=2), ["varlen"]),
    "64-rows": (dict(SHORT, lens_q=(16,) * 16, heads=8, heads_kv=2), ["sm_90a"]),
    "64-rows-of-bytes": (
        dict(SHORT, lens_q=(16,) * 16, heads=8, heads_kv=2, stored="e4m3"), ["varlen"]),
    # Two launches, unless most sequences have many rows.
    "decoding": (dict(SHORT, lens_q=(300, *(1,) * 15), heads=8), ["sm_90a", "varlen"]),
    "few-tokens": (dict(SHORT, lens_q=(300, *(8,) * 15), heads=8), ["sm_90a", "varlen"]),
    "many-tokens": (dict(SHORT, lens_q=(300, *(200,) * 14, 1), heads=1), ["sm_90a"]),
}  # fmt: skip


@pytest.mark.emulated  # its 132 multiprocessors decide
@pytest.mark.parametrize("name", LAUNCHES)
def test_which_launches_a_call_has(name):
    shape, paths = LAUNCHES[name]
    explained = case_of(**shape).explain()
    assert [launch["path"] for launch in explained.get("launches", [explained])] == paths


@pytest.mark.emulated
@pytest.mark.parametrize("tokens, rows", [(1, 16), (6, 32), (12, 64)])
def test_decoding_beside_whole_tiles_has_tiles_for_the_rows_that_others_have(tokens, rows):
    shape = dict(SHORT, lens_q=(4000, *(tokens,) * 15), heads=8, heads_kv=2)
    whole, decoding = case_of(**shape).explain()["launches"]
    assert not whole["config"].endswith("split")
    assert decoding["config"].startswith(f"{rows}x")


@pytest.mark.parametrize(
    "length, heads, tile",
    [(4096, 8, "128x128x2"), (16384, 8, "192x80x3 grouped"), (1339, 28, "192x80x2"),
     (2401, 16, "192x80x3 grouped"), (3000, 8, "128x128x2")],
)  # fmt: skip
def test_tiles_of_a_triangle(length, heads, tile):
    """The longest may take as long as all that a multiprocessor has, so that it has fewer rows.
    H200: 4096 66 us, with 192 rows 70 us; 1339 37 us, with 128 rows 44 us; 2401 49 and 56 us."""
    q = torch.empty([1, length, heads, 128], dtype=torch.bfloat16, device=DEVICE)
    kv = q[:, :, : {28: 4, 16: 2, 8: 1}[heads]]
    options = dict(cache_seqlens=integers([length]), causal=True)
    explained = kiln.explain("flash_attention_with_kvcache", q, kv, kv, **options)
    assert explained["config"] == tile


def test_one_split_is_none():
    case = case_of(head_dim=128, page=64, num_splits=1)
    assert not case.explain()["config"].endswith("split")


@pytest.mark.parametrize("case", REPEATED.values(), ids=REPEATED)
def test_repeats_are_bit_identical(case):
    given = case.inputs()
    first = case.check()
    others = case.call(case.inputs(seed=500))
    for _ in range(sized(small=1, full=50)):
        others.run()  # leaves its own results in the workspace
        again = case.call(given)
        again.run()
        assert torch.equal(again.out.view.nan_to_num(7), first.out.view.nan_to_num(7))
        assert torch.equal(again.lse.nan_to_num(7), first.lse.nan_to_num(7))


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])
def test_what_lies_in_the_workspace_does_not_matter(byte):
    case = REPEATED["paged"]
    call = case.call(given := case.inputs())
    leave_in_free_memory(call.explain()["workspace_bytes"], byte)
    call.run()
    call.judge(given)


@pytest.mark.cuda
def test_streams_have_workspaces_of_their_own():
    case = case_of(head_dim=128, page=64, lens_q=(300,), lens_k=(20000,), heads=8)
    streams = [torch.cuda.Stream() for _ in range(2)]
    given = [case.inputs(seed=seed) for seed in range(2)]
    calls = [[case.call(one) for _ in range(20)] for one in given]
    torch.cuda.synchronize()
    for pair in zip(*calls):
        for stream, call in zip(streams, pair):
            with torch.cuda.stream(stream):
                call.run()
    torch.cuda.synchronize()
    for one, all_calls in zip(given, calls):
        for call in all_calls:
            call.judge(one)


@pytest.mark.cuda
@pytest.mark.parametrize("page", [64, 16])
def test_a_graph_is_replayed_with_other_lengths_and_pages(page):
    """Also with sequences that became empty, and with others of which there are more keys."""
    case = case_of(head_dim=128, page=page, lens_q=(300, 70, 200), lens_k=(9000, 6000, 9000))
    call = case.call(case.inputs())
    call.run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.run()
    lengths = [(9000, 6000, 9000), (1, 6000, 8999), (300, 0, 0), (0, 0, 0), (5000, 77, 200)]
    for turn, lens_k in enumerate(lengths):
        lens_q = tuple(min(n, k) if turn != 2 else n for n, k in zip(case.lens_q, lens_k))
        new = dataclasses.replace(case, lens_q=lens_q, lens_k=lens_k)
        given = new.inputs(seed=turn)
        expected = new.call(given)
        for name in ("cu_seqlens_q", "seqused_k"):
            call.keywords[name].copy_(expected.keywords[name])
        width = expected.keywords["block_table"].shape[1]
        call.keywords["block_table"][:, :width] = expected.keywords["block_table"]
        for mine, theirs in ((call.k, expected.k), (call.v, expected.v)):
            mine[: len(theirs)] = theirs
        call.q[: len(expected.q)] = expected.q
        call.out.buffer.fill_(math.nan)
        call.lse.fill_(math.nan)
        graph.replay()
        expected.out.view.copy_(call.out.view[: len(expected.q)])
        expected.lse.copy_(call.lse[:, : len(expected.q)])
        expected.judge(given)
