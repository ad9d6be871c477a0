"""Hopper's attention over pages: which tile many keys get, and its results in many page sizes."""

import math

import grid
import kiln
import pytest
import torch
from storage import DEVICE
from varlen_case import VarlenCase, integers, starts

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

LONG = dict(lens_q=(200, 0, 70), lens_k=(300, 5, 270), heads=2, heads_kv=1, head_dim=128)


@pytest.mark.parametrize("page", [1, 8, 16, 24, 48, 64, 256])
def test_tiles_of_192_rows(page):
    """Where no bound chooses, tiles are those of many keys."""
    case = VarlenCase(**LONG, page=page, num_splits=1)
    assert case.explain()["config"] == "192x80x3"
    case.check()


@pytest.mark.parametrize(
    "options",
    [
        dict(window=(100, 20)), dict(causal=False), dict(softcap=3.0),
        dict(alibi="h"), dict(dtype="f16", sinks="f16"), dict(head_dim=96),
        dict(head_dim=72, peak="edges", scale=1.0),
    ],
    ids=["window", "full", "softcap", "alibi", "sinks-f16", "d96", "d72-peaked"],
)  # fmt: skip
def test_options_of_tiles_of_192_rows(options):
    case = VarlenCase(**{**LONG, **options}, page=16, num_splits=1)
    assert case.explain()["config"] == "192x80x3"
    case.check()


@pytest.mark.parametrize("following", [1000, 150, 64, 37])
@pytest.mark.parametrize(
    "options",
    [
        dict(), dict(cache="pool"), dict(cache="interleaved", keys="lists"), dict(cache="hnd"),
        dict(page=5), dict(page=5, cache="hnd"), dict(page=6, cache="pool"),
        dict(window=(100, 20)), dict(causal=False, head_dim=96), dict(head_dim=256),
        dict(head_dim=192, head_dim_v=128), dict(head_dim=64, alibi="h"),
        dict(op="kvcache", lens_q=(70,) * 3, leftpad=(3, 0, 130), page=16),
    ],
    ids=["nhd", "pool", "lists", "hnd", "page-5", "page-5-hnd", "page-6-pool", "window", "full-d96",
         "d256", "d192x128", "d64-alibi", "leftpad"],
)  # fmt: skip
def test_pages_that_follow_one_another(options, following):
    """Rows of a tile that do come in one box, others are gathered; the cache is NaN around them."""
    VarlenCase(**{**LONG, "page": 1, **options}, following=following).check()


def in_larger_pages(cache):
    """The same pages in a pool whose pages have one more row, of NaN."""
    pages, rows, *rest = cache.shape
    pool = torch.full((pages, rows + 1, *rest), math.nan, dtype=cache.dtype, device=cache.device)
    pool[:, :rows] = cache
    return pool[:, :rows]


def with_heads_first(cache):
    return cache.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize(
    ("move_k", "move_v", "path"),
    [
        (in_larger_pages, in_larger_pages, "sm_90a"),
        (in_larger_pages, None, "varlen"),
        (None, with_heads_first, "varlen"),
        (with_heads_first, with_heads_first, "sm_90a"),
    ],
)
def test_rows_are_gathered_by_places_that_keys_and_values_share(move_k, move_v, path):
    """Elsewhere the portable kernel serves the call. Rows of values may be narrower."""
    for options in (dict(page=4), dict(page=4, head_dim_v=64), dict(page=6, following=1000)):
        case = VarlenCase(**{**LONG, **options, "heads": 4, "heads_kv": 2})
        given = case.inputs()
        call = case.call(given)
        if move_k:
            call.k = move_k(call.k)
        if move_v:
            call.v = move_v(call.v)
        assert call.explain()["path"] == path
        call.run()
        call.judge(given)


def tile_of(lens_q, lens_k, heads, heads_kv, page=0, **options):
    def empty(*shape):
        return torch.empty(*shape, 128, dtype=torch.bfloat16, device=DEVICE)

    width = -(-max(lens_k) // page) if page else 0
    k = empty(width, page, heads_kv) if page else empty(sum(lens_k), heads_kv)
    where = dict(cu_seqlens_k=starts(lens_k))
    if page:
        table = torch.zeros(len(lens_k), width, dtype=torch.int32, device=DEVICE)
        where = dict(seqused_k=integers(lens_k), block_table=table)
    bounds = dict(max_seqlen_q=max(lens_q), max_seqlen_k=max(lens_k), causal=True)
    q = empty(sum(lens_q), heads)
    call = dict(cu_seqlens_q=starts(lens_q), **bounds, **where, **options)
    return kiln.explain("flash_attention_varlen", q, k, k, **call)["config"]


@pytest.mark.emulated  # rounds are of its 132 multiprocessors
def test_rounds_choose_the_tile():
    """Whole rounds, or shares of all of them. H200: 1024 of 64k keys, 32 heads, 1470 us in shares
    of 192 rows, 1616 us in whole tiles of 128; 2048 of 16 heads, 32k keys, 775 and 842 us. 2048, 8
    heads, which are a triangle, 41 us with 192 rows and 33 with 128, of which no two blocks share
    one; 1846 of 2766 keys, 4 heads, 39 us in whole tiles, 29 in shares."""
    assert tile_of([1024], [65536], 32, 8) == "192x80x2 split"
    assert tile_of([2048], [32768], 16, 16) == "192x80x2 split"
    assert tile_of([700], [65536], 24, 4) == "192x80x2 split"
    assert tile_of([2048], [2048], 8, 1) == "128x128x2"
    assert tile_of([1846], [2766], 4, 1) == "128x128x2 split"
    assert tile_of([8192], [65536], 32, 8, page=16) == "192x80x3 split"
    assert tile_of([8192], [65536], 32, 8, page=1) == "192x80x2 split"  # a launch copies the keys
    assert tile_of([1536], [65536], 32, 8) == "192x80x2"
    assert tile_of([2048] * 4, [6144] * 4, 16, 2, page=64) == "128x128x3"
    assert tile_of([3000], [3000], 8, 1, page=64) == "128x128x3"
    assert tile_of([5000], [5000], 32, 32, page=64, window=(1000, 0)) == "128x128x3"


@pytest.mark.emulated
def test_heads_are_grouped_where_that_leaves_less_work():
    """H200: 16 x 1024, 260 and 276 us; 5 x 700 of 9000 keys, 707 and, in shares, 766 us. Beside 63
    sequences that decode, 2048 take 199 us alone, 204 us grouped."""
    assert tile_of([1024] * 16, [1024] * 16, 32, 8, page=64) == "192x80x3 grouped"
    assert tile_of([5000] * 2, [5000] * 2, 32, 8, page=64) == "192x80x3 grouped"
    assert tile_of([700] * 5, [9000] * 5, 32, 8, page=64) == "192x80x3 grouped"
    assert tile_of([16] * 16, [8192] * 16, 32, 8, page=64) == "128x128x3 grouped"
    assert tile_of([2048] + [1] * 63, [2048] * 64, 32, 8, page=64) == "192x80x3"


@pytest.mark.emulated
@pytest.mark.parametrize("page", [0, 64])
def test_equal_lengths_choose_the_tile(page):
    """1500 queries fill 7.8 tiles of 192 rows, and 11.7 of 128. H100: pages of 64, 88 and 95 us;
    1000 queries of 3500 keys, 180 and 160 us."""
    wide, narrow = ("192x80x3", "128x128x3") if page else ("192x80x2", "128x128x2")
    assert tile_of([1500] * 3, [1500] * 3, 24, 8, page=page) == wide
    assert tile_of([1500, 700, 20], [1500] * 3, 24, 8, page=page) == narrow
    if page:
        assert tile_of([1000] * 4, [3500] * 4, 16, 4, page=page) == narrow
