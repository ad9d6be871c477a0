"""Attention over sequences that have lengths of their own, packed, in a cache and in pages."""

import dataclasses
import math

import kiln
import pytest
import torch
from attention_case import OPTIONS
from case_group import CaseGroup
from grid import sized
from kiln import jit
from plan_case import check_planned
from split_case import DIMS, spelled_keys
from storage import DEVICE, leave_in_free_memory, randn
from varlen_case import VarlenCase, check_beside_larger_queries, integers

pytestmark = pytest.mark.usefixtures("compiled", "device")

# Lengths of queries and keys, heads: decode, several queries, prefill beside decode, and more query
# tiles than there are multiprocessors. Some have no queries, no keys, fewer keys than queries.
LONG = sized(small=700, full=4099)
SEQUENCES = {
    "decode": dict(lens_q=(1, 1, 1, 1, 1), lens_k=(LONG, 3, 0, 129, 64), heads=8),
    "alone": dict(lens_q=(2,), lens_k=(LONG,), heads=14),
    "rows-32": dict(lens_q=(4, 3, 0), lens_k=(LONG, 40, 7), heads=16),
    "rows-64": dict(lens_q=(5, 5), lens_k=(300, LONG), heads=14),
    "mixed": dict(lens_q=(1, 75, 0, 6, 1), lens_k=(LONG, 75, 9, 4, 33), heads=4),
    "border": dict(lens_q=(16, 17, 64, 65), lens_k=(40, 50, 65, 70), heads=2),
    "prefill": dict(lens_q=(150, 0, 129), lens_k=(150, 5, 300), heads=4),
    "many": dict(lens_q=(1,) * 70, lens_k=tuple(7 * i % 50 for i in range(70))),
}
MASKS = {"causal": {}, "full": {"causal": False}, "window": {"window": (40, 3)}}
KEYS = ["packed", "paged", "cache", "paged by offsets"]


def shape_groups():
    """Every head dim with each kind of sequences; dtypes, masks and storages take turns."""
    turn = 0
    for dim, dim_v in DIMS:
        for name, sequences in SEQUENCES.items():
            turn += 1
            mask = list(MASKS.values())[turn % 3]
            keys = KEYS[(turn + turn // 4) % 4]
            case = VarlenCase(
                dtype=("bf16", "f16")[turn % 2], head_dim=dim, head_dim_v=dim_v, keys=keys,
                page=(16, 1, 7, 64)[turn % 4], loose=turn % 3, **sequences, **mask,
            )  # fmt: skip
            yield CaseGroup(f"{name}-d{dim}x{dim_v}", (case,))


@pytest.mark.parametrize("group", list(shape_groups()), ids=str)
def test_shapes(group):
    group.check()


@pytest.mark.parametrize("heads", [(8, 4), (4, 4)], ids=str)
def test_blocks_that_compute_several_tiles(heads):
    """Whole ones, and parts of those at the ends of their shares."""
    lens_k = tuple(17 + 5 * i % 30 for i in range(140))
    VarlenCase(lens_q=(1,) * 140, lens_k=lens_k, heads=heads[0], heads_kv=heads[1]).check()


@pytest.mark.parametrize("cache", ["nhd", "hnd", "interleaved", "pool", "offset"])
@pytest.mark.parametrize("keys,page", [("cache", 0), ("paged", 16), ("paged", 1), ("paged", 48)])
def test_caches(cache, keys, page):
    """Whatever the strides of pages, tokens and heads."""
    sequences = SEQUENCES["mixed" if page == 48 else "decode"]
    VarlenCase(cache=cache, keys=keys, page=page or 16, **sequences).check()


def test_strides_of_one_head_do_not_matter():
    """As tensor parallelism leaves it."""
    case = VarlenCase(heads=4, heads_kv=1)
    given = case.inputs()
    call = case.call(given)
    for name in "kv":
        cache = getattr(call, name)
        strides = (*cache.stride()[:2], 7, 1)
        setattr(call, name, cache.as_strided(cache.shape, strides))
    call.run()
    call.judge(given)


@pytest.mark.parametrize(
    "options", [{**o, "name": n} for n, o in OPTIONS.items() if n not in ("scale-zero",)],
    ids=lambda o: o["name"],
)  # fmt: skip
def test_options(options):
    options = {name: value for name, value in options.items() if name != "name"}
    VarlenCase(dtype="f16", **SEQUENCES["decode"], **options).check()
    VarlenCase(dtype="f16", keys="packed", **SEQUENCES["mixed"], **options).check()


@pytest.mark.parametrize("page", [1, 7])
@pytest.mark.parametrize("window", [(-1, -1), (100, 0)], ids=["causal", "window"])
def test_gathered_pages(page, window):
    """A prefill gathers pages that have too few rows for the copy engine."""
    for head_dim in (64, 72):
        VarlenCase(
            lens_q=(140, 0, 70), lens_k=(400, 5, 70), page=page, window=window, head_dim=head_dim
        ).check()


# It has more tiles than there are multiprocessors, so that CTAs compute several.
DRAWN = VarlenCase(
    lens_q=(66, 70), lens_k=(66, 90), heads=70, heads_kv=70, keys="packed", head_dim=8
)


def test_tiles_are_drawn_once():
    DRAWN.check()


@pytest.mark.parametrize(
    "options", [{}, {"window": (1100, 0)}, {"alibi": "h"}, {"lens_k": (4400, 1250)}], ids=str
)
def test_the_next_tile_is_drawn_in_the_last_steps_of_one(options):
    """These are published by themselves, whichever keys come last. 4400 keys are 35 tiles."""
    case = VarlenCase(lens_q=(140, 66), lens_k=(1500, 1250), heads=2, page=64, num_splits=1)
    dataclasses.replace(case, **options).check()


def test_more_heads_than_have_keys_in_l2():
    """Their tiles are dealt in groups of heads."""
    VarlenCase(
        lens_q=(70,), lens_k=(6600,), heads=4, heads_kv=4, head_dim=256, window=(100, 0)
    ).check()


@pytest.mark.parametrize("keys", ["cache", "paged"])
@pytest.mark.parametrize("len_q", [1, 5, 33])
def test_with_kvcache(keys, len_q):
    lengths = dict(lens_q=(len_q,) * 3, lens_k=(300, 5, 64))
    VarlenCase(op="kvcache", keys=keys, page=7, head_dim=128, **lengths).check()


@pytest.mark.parametrize("keys", ["packed", "paged"])
@pytest.mark.parametrize("peak", ["edges", "diagonal", "first", "last"])
def test_peaks(keys, peak):
    """One key dominates each row, at every edge of a tile and of a page."""
    batch = sized(small=4, full=40)
    case = VarlenCase(
        lens_q=(3,) * batch, lens_k=tuple(517 + 3 * i for i in range(batch)), heads=8, heads_kv=2,
        keys=keys, peak=peak, scale=1.0, causal=peak == "diagonal", page=7,
    )  # fmt: skip
    case.check()


def test_the_value_of_the_dominating_key_is_read():
    """Independent of the reference: an output's signs spell the key that its row looked at."""
    case = VarlenCase(
        lens_q=(1,) * 8, lens_k=(1000,) * 8, heads=16, heads_kv=16, causal=False, scale=1.0,
        peak="edges", page=3,
    )  # fmt: skip
    given = case.inputs()
    call = case.call(given)
    call.run()
    heads = torch.arange(16, device=DEVICE)
    expected = heads // 2 * 16 + heads % 2 * 15
    found = spelled_keys(call.out.view[:8, None])[:, 0]
    assert torch.equal(found, expected.expand(8, 16))


def test_what_lies_before_a_window_is_not_read():
    """Neither its pages nor a sensible entry of the table."""
    case = VarlenCase(lens_q=(1, 1), lens_k=(500, 90), window=(31, 0), page=16)
    given = case.inputs()
    call = case.call(given)
    for b, (length, reach) in enumerate(((500, 31), (90, 31))):
        unused = (length - 1 - reach) // 16
        table = call.keywords["block_table"]
        for page in table[b, :unused].tolist():
            call.k[page], call.v[page] = math.nan, math.nan
        table[b, :unused] = -77777777
    call.run()
    call.judge(given)


@pytest.mark.parametrize("lens_q", [(), (0, 0)], ids=str)
def test_nothing_to_compute(lens_q):
    k = randn([9, 2, 64], torch.bfloat16, 2)
    offsets = integers([0] * (len(lens_q) + 1))
    bounds = dict(max_seqlen_q=3, max_seqlen_k=9, cu_seqlens_q=offsets, cu_seqlens_k=offsets)
    for tokens in (0, 5):
        q = randn([tokens, 4, 64], torch.bfloat16, 1)
        out = torch.full_like(q, math.nan)
        jit.flash_attention_varlen(q, k, k, out=out, **bounds)
        assert out.isnan().all()


@pytest.mark.parametrize("name", ["alone", "decode", "mixed"])
def test_bounds_that_are_too_low_cost_time_alone(name):
    case = VarlenCase(**SEQUENCES[name])
    given = case.inputs()
    call = case.call(given)
    call.keywords.update(max_seqlen_q=1, max_seqlen_k=1)
    call.run()
    call.judge(given)


ONE = {
    "no keys": dict(lens_q=(1,), lens_k=(0,), sinks="bf16"),
    "no queries": dict(lens_q=(0,), lens_k=(9,), loose=1),
    "one key": dict(lens_q=(1,), lens_k=(1,)),
    "fewer steps than blocks": dict(lens_q=(1,), lens_k=(600,), heads=4, head_dim=128),
    "many-steps": dict(lens_q=(1,), lens_k=(2700,), heads=2, heads_kv=1, head_dim=128),
    "more": dict(lens_q=(1,), lens_k=(2700,), heads=16, heads_kv=16, head_dim=128, keys="cache"),
    "more heads than blocks": dict(lens_q=(1,), lens_k=(70,), heads=300, heads_kv=150),
    "rows of 32": dict(lens_q=(4,), lens_k=(700,), heads=7, heads_kv=1, keys="packed"),
    "window": dict(lens_q=(1,), lens_k=(1500,), window=(600, 0), head_dim=128),
    "8 bits": dict(lens_q=(2,), lens_k=(900,), stored="e4m3", scales="heads", head_dim=128),
    "padding": dict(
        op="kvcache", lens_q=(2,), lens_k=(500,), entries="shuffled", keys="lists", leftpad=(5,)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_one_sequence(name):
    """Its keys are cut as the host says, with a plan too."""
    case = VarlenCase(**ONE[name])
    case.check()
    if case.lens_q != (0,):
        check_planned(case)


@pytest.mark.parametrize("len_q", [9, 40])
def test_one_sequence_of_more_rows_than_the_bound_says(len_q):
    case = VarlenCase(lens_q=(len_q,), lens_k=(700,))
    given = case.inputs()
    call = case.call(given)
    call.keywords.update(max_seqlen_q=1)
    call.run()
    call.judge(given)


UNCUT = VarlenCase(
    lens_q=(1, 30, 4, 1), lens_k=(333, 400, 150, 2000), heads=8, heads_kv=2, num_splits=1
)


@pytest.mark.parametrize("keys", ["packed", "paged"])
def test_without_splits_a_sequence_does_not_depend_on_others(keys):
    """Nor on the bounds, to the last bit."""
    case = dataclasses.replace(UNCUT, keys=keys)
    given = case.inputs()
    together = case.call(given)
    together.run()
    together.judge(given)
    for b in range(case.batch):
        for loose in (0, 3000):
            alone = dataclasses.replace(
                case, lens_q=case.lens_q[b : b + 1], lens_k=case.lens_k[b : b + 1], loose=loose
            ).call(given[b : b + 1])
            alone.run()
            expected = together.queries(together.out.view, b)
            assert torch.equal(alone.queries(alone.out.view, 0), expected)
            assert torch.equal(alone.lse_of(0), together.lse_of(b))


def test_without_splits_the_size_of_other_queries_does_not_matter():
    """Queries of the next sequence lie in the same tile."""
    check_beside_larger_queries()


def test_values_before_a_window_may_be_anything():
    """In pages that lie wholly before it, gathered or not, or in one box with others."""
    for page, following in ((7, 1), (16, 1), (64, 1), (1, 1000)):
        where = dict(page=page, following=following, window=(100, 0))
        case = VarlenCase(lens_q=(140,), lens_k=(400,), **where)
        given = case.inputs()
        call = case.call(given)
        unseen = call.keywords["block_table"][0, : (400 - 140 - 100) // page].long()
        for cache in (call.k, call.v):
            cache[unseen] = math.nan
        call.run()
        call.judge(given)


REPEATED = {
    "cut one by one": VarlenCase(lens_q=(1, 1, 1), lens_k=(1500, 90, 700), heads=8),
    # More parts of a tile than are read at once, and more than half as many.
    "many parts": VarlenCase(lens_q=(1, 1), lens_k=(5000, 2500), heads=2, heads_kv=1),
    "equal shares": VarlenCase(lens_q=(1,) * 80, lens_k=tuple(range(20, 500, 6)), heads=8),
    "prefill": VarlenCase(lens_q=(1, 40, 9), lens_k=(900, 40, 300)),
    "drawn tiles": sized(
        small=DRAWN,
        full=VarlenCase(lens_q=(900, 70, 1500), lens_k=(1900, 70, 1500), heads=32, heads_kv=2),
    ),
}


@pytest.mark.parametrize("case", REPEATED.values(), ids=REPEATED)
def test_repeats_are_bit_identical(case):
    given = case.inputs()
    first = case.check()
    others = case.call(case.inputs(seed=500))
    for _ in range(sized(small=2, full=50)):
        others.run()  # leaves its own results in the workspace
        again = case.call(given)
        again.run()
        assert torch.equal(again.out.view.nan_to_num(7), first.out.view.nan_to_num(7))
        assert torch.equal(again.lse.nan_to_num(7), first.lse.nan_to_num(7))


@pytest.mark.parametrize("case", REPEATED.values(), ids=REPEATED)
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xFF])  # 0x7f7f7f7f is 3e38, 0xffffffff is NaN
def test_what_lies_in_the_workspace_does_not_matter(case, byte):
    given = case.inputs()
    call = case.call(given)
    size = call.explain()["workspace_bytes"]
    assert size > 0
    leave_in_free_memory(size, byte)
    call.run()
    call.judge(given)


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_architectures(device, arch):
    with device.on(arch):
        VarlenCase(head_dim=128, **SEQUENCES["mixed"]).check()
        VarlenCase(**SEQUENCES["border"]).check()


def test_a_variant():
    """Its tensor has the bounds' sizes, and its hooks see each sequence's own positions."""
    near = jit.Variant(
        "near", params={"reach": "i32"}, tensors={"bias": "f32[h, kv]"},
        logits="logit + bias", mask="q - kv < reach && kv < len_kv - 1 + row * 0",
    )  # fmt: skip
    case = VarlenCase(causal=False, lens_q=(1, 2), lens_k=(90, 33))
    given = case.inputs()
    call = case.call(given)
    bias = randn([case.heads, 90], torch.float32, 9)
    call.keywords["variant"] = near(reach=20, bias=bias)
    call.run()
    for b, (q, k, v) in enumerate(given):
        expected = torch.empty_like(q)
        dense = near(reach=20, bias=bias[:, : len(k)].contiguous())
        jit.flash_attention(q[None], k[None], v[None], variant=dense, out=expected[None])
        error = (call.queries(call.out.view, b).float() - expected.float()).abs().max()
        assert error < 0.02


@pytest.mark.cuda
@pytest.mark.parametrize("case", REPEATED.values(), ids=REPEATED)
def test_a_graph_is_replayed_with_other_lengths_and_pages(case):
    """Also with sequences that became empty."""
    given = case.inputs()
    call = case.call(given)
    call.run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.run()
    for turn in range(3):
        lens_k = tuple(max(0, n - 13 * turn) if turn < 2 else n // 2 for n in case.lens_k)
        lens_q = case.lens_q if turn else tuple(min(n, 1) for n in case.lens_q)
        other = dataclasses.replace(case, lens_q=lens_q, lens_k=lens_k)
        given = other.inputs(seed=turn)
        new = other.call(given)
        for name in ("cu_seqlens_q", "seqused_k"):
            call.keywords[name].copy_(new.keywords[name])
        width = new.keywords["block_table"].shape[1]
        call.keywords["block_table"][:, :width] = new.keywords["block_table"]
        for mine, theirs in ((call.k, new.k), (call.v, new.v)):
            mine[: len(theirs)] = theirs
        call.q[: len(new.q)] = new.q
        call.out.buffer.fill_(math.nan)
        call.lse.fill_(math.nan)
        graph.replay()
        new.out.view.copy_(call.out.view[: len(new.q)])
        new.lse.copy_(call.lse[:, : len(new.q)])
        new.judge(given)


@pytest.mark.cuda
def test_a_cache_of_more_than_two_billion_elements():
    pages, page, heads, dim = 17000, 1024, 1, 128
    k = torch.zeros([pages, page, heads, dim], dtype=torch.float16, device=DEVICE)
    v = torch.zeros_like(k)
    k[-3:], v[-3:] = randn([3, page, heads, dim], torch.float16, 1), 1.0
    q = randn([1, 1, 4, dim], torch.float16, 2)
    table = integers([[pages - 3, pages - 2, pages - 1]])
    out = jit.flash_attention_with_kvcache(
        q, k, v, cache_seqlens=integers([3000]), block_table=table
    )
    assert torch.equal(out, torch.ones_like(out))


def test_no_length_compiles():
    case = VarlenCase(**SEQUENCES["decode"])
    case.check()
    before = kiln.stats()["compiles"]
    for page, lens_k in ((5, (9, 9, 9, 9, 9)), (128, (300, 200, 100, 0, 1))):
        dataclasses.replace(case, page=page, lens_k=lens_k).check()
    assert kiln.stats()["compiles"] == before
