"""Calls of Hopper's kernel whose blocks share the keys of query tiles: those with a plan give the
same bits as those without one, and read it."""

import dataclasses
import functools
import math

import grid
import kiln
import pytest
import torch
from kiln import jit
from plan_case import bits, check_trap, compare_planned, plan_of, planned_words
from storage import DEVICE, randn
from varlen_case import VarlenCase

pytestmark = [
    pytest.mark.usefixtures("compiled", "device"),
    pytest.mark.skipif(not grid.arch().startswith("sm_90"), reason="wgmma is of sm_90a alone"),
]

LONG = grid.sized(small=1500, full=20011)
CASES = {
    # Tiles are cut one by one, into as many pieces as there are blocks.
    "one-by-one": VarlenCase(lens_q=(70, 66), lens_k=(LONG, 700), page=64),
    "packed": VarlenCase(lens_q=(70, 130, 0), lens_k=(1300, LONG, 9), keys="packed", head_dim=128),
    "grouped": VarlenCase(lens_q=(20, 30), lens_k=(LONG, 700), heads=8, heads_kv=1, page=16),
    "full": VarlenCase(lens_q=(70, 66), lens_k=(LONG, 700), heads=4, heads_kv=2, causal=False),
    "window": VarlenCase(lens_q=(140, 66), lens_k=(LONG + 700, 80), window=(1500, 3)),
    "flags": VarlenCase(lens_q=(70, 65), lens_k=(LONG, 600), causal=(True, False)),
    "alibi": VarlenCase(lens_q=(70, 65), lens_k=(LONG, 600), alibi="h", sinks="bf16"),
    "rows-of-192": VarlenCase(
        lens_q=(48, 41, 48, 33, 48, 20), lens_k=(700, 90, 1300, 33, 0, 400), heads=8, heads_kv=2,
        head_dim=128, page=64, loose=50000,
    ),
    "leftpad": VarlenCase(
        op="kvcache", lens_q=(70, 70), lens_k=(LONG, 700), entries="shuffled", leftpad=(37, 0)
    ),
    "lists": VarlenCase(lens_q=(70, 66), lens_k=(LONG, 700), keys="lists", page=16),
    "bytes": VarlenCase(
        lens_q=(70, 66), lens_k=(LONG, 700), head_dim=128, stored="e4m3", byte_queries=True,
        scales="heads", page=64,
    ),
    # The decoding launch has entries of its own in the plan.
    "beside-decodes": VarlenCase(lens_q=(1, 70, 1, 0, 66), lens_k=(900, LONG, 3, 9, 700), page=64),
    # One launch takes all that have more than 16 rows, another the others.
    "beside-few-tokens": VarlenCase(
        lens_q=(300, 6, 1, 5, 3, 1, 2), lens_k=(LONG, 900, 700, 5, 300, 2, 1400), heads=8,
        heads_kv=1, page=64,
    ),
    # One launch is enough where most sequences have many rows.
    "few-tokens": VarlenCase(
        lens_q=(8, 7, 1, 8, 5), lens_k=(LONG, 300, 900, 8, 1400), heads=32, heads_kv=4, page=16
    ),
    # More tiles than multiprocessors, of 128 rows: all are laid end to end.
    "end-to-end": VarlenCase(
        head_dim=8, page=64, lens_q=(65,) * 68 + (130,), loose=3000, heads=2, heads_kv=1,
        softcap=3.0, lens_k=(*(1300 if b % 8 == 3 else 65 + 9 * b % 50 for b in range(68)), 900),
    ),
}  # fmt: skip
# Blocks have up to six pieces, which are more than the plan says of one.
MANY_PIECES = VarlenCase(
    head_dim=8, keys="packed", lens_q=(65,) * 208, heads=1, heads_kv=1,
    lens_k=tuple(10000 if b % 11 == 5 else 65 for b in range(208)),
)  # fmt: skip


def call_of(case, **bounds):
    call = case.call(given := case.inputs())
    call.keywords.update(bounds)
    explained = call.explain()
    assert explained["path"] == "sm_90a" and explained["config"].endswith("split"), explained
    return call, given


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_planned_calls_give_the_same_bits(case):
    compare_planned(*call_of(case))


@pytest.mark.emulated  # its 132 multiprocessors are as many as the tiles that the bound admits
def test_blocks_with_more_pieces_than_a_plan_says():
    compare_planned(*call_of(MANY_PIECES, max_seqlen_q=30000))


def test_what_is_planned():
    """One launch for each of the call's: here decoding has one, too."""
    call, _ = call_of(CASES["beside-decodes"])
    explained = kiln.explain("plan_attention", call.q, call.k, call.v, **planned_words(call))
    assert [launch["path"] for launch in explained["launches"]] == ["shares", "plan"]


def test_one_sequence_needs_no_plan():
    """The host knows how its tiles are cut."""
    call, given = call_of(VarlenCase(lens_q=(70,), lens_k=(LONG,), page=64))
    made = plan_of(call, plan=torch.full([1 << 15], 7, dtype=torch.int32, device=DEVICE))
    assert (made == 7).all()
    compare_planned(call, given)


@pytest.mark.emulated
@pytest.mark.parametrize("changes", [{"window": (1400, 0)}, {"heads": 8}], ids=str)
def test_a_plan_of_another_group_is_a_trap(changes):
    case = CASES["one-by-one"]
    call, _ = call_of(case)
    other, _ = call_of(dataclasses.replace(case, **changes))
    check_trap(call, other)


def test_a_plan_of_new_lengths_takes_the_place_of_the_old():
    """In one buffer, as a graph replays them: blocks that had pieces have none, and others have."""
    call, _ = call_of(CASES["one-by-one"])
    lengths = call.keywords["seqused_k"]
    buffer = torch.full([1 << 16], -1, dtype=torch.int32, device=DEVICE)
    given = lengths.clone()
    for share in (1.0, 0.0, 0.3, 0.9):
        lengths.copy_((given * share).to(lengths.dtype))
        results = []
        for plan in (None, plan_of(call, plan=buffer)):
            call.keywords["plan"] = plan
            call.out.buffer.fill_(math.nan)
            call.lse.fill_(math.nan)
            call.run()
            results.append(bits(call).clone())
        assert torch.equal(*results)


@pytest.mark.parametrize("moved", ["q", "k_cache", "v_cache", "out"])
def test_tensors_that_are_not_aligned_need_no_plan(moved):
    """A plan knows of no addresses and no out; where these choose another kernel, none is read."""
    tensors = {
        "q": randn([2, 33, 4, 64], torch.bfloat16, 1),
        "k_cache": randn([2, 180, 2, 64], torch.bfloat16, 2),
        "v_cache": randn([2, 180, 2, 64], torch.bfloat16, 3),
        "out": randn([2, 33, 4, 64], torch.bfloat16, 4),
    }
    step = dict(
        cache_seqlens=torch.tensor([180, 70], dtype=torch.int32, device=DEVICE), causal=True
    )
    inputs = [tensors[name] for name in ("q", "k_cache", "v_cache")]
    plan = jit.plan_attention(*inputs, **step)
    wanted = jit.flash_attention_with_kvcache(*inputs, **step)
    plain = torch.empty(tensors[moved].numel() + 1, dtype=torch.bfloat16, device=DEVICE)[1:]
    tensors[moved] = plain.view(tensors[moved].shape).copy_(tensors[moved])
    out = tensors.pop("out")
    call = functools.partial(jit.flash_attention_with_kvcache, *tensors.values(), out=out, **step)
    planned = call(plan=plan).clone()
    assert torch.equal(planned, call())
    assert (planned.float() - wanted.float()).abs().max() < 0.02
