"""Calls with a plan that jit.plan_attention has made give the same bits as calls without one."""

import dataclasses
import math

import pytest
import torch
from context_case import ContextCase
from grid import sized
from plan_case import bits, check_planned, check_trap, compare_planned, plan_of
from storage import DEVICE
from tree_case import TreeCase
from varlen_case import VarlenCase

pytestmark = pytest.mark.usefixtures("compiled", "device")

LONG = sized(small=500, full=4099)
MANY = sized(small=70, full=300)
CASES = {
    # Tiles are cut one by one; get equal shares of more than there are blocks for; are whole.
    "cut": VarlenCase(lens_q=(1, 1, 1, 1), lens_k=(LONG, 3, 0, 129), heads=8),
    "shares": VarlenCase(
        lens_q=(1,) * MANY, lens_k=tuple(17 * i % 90 for i in range(MANY)), heads_kv=4, page=7
    ),
    "whole": VarlenCase(lens_q=(1, 1, 0, 1), lens_k=(LONG, 3, 9, 40), num_splits=1),
    # Prefill beside decode: two launches, of which sm_90a draws the tiles of one.
    "mixed": VarlenCase(lens_q=(1, 75, 0, 6, 1), lens_k=(LONG, 75, 9, 4, 33)),
    "packed": VarlenCase(lens_q=(2, 5, 0, 1), lens_k=(70, 5, 0, LONG), keys="packed", loose=2),
    "window": VarlenCase(lens_q=(1, 1, 1), lens_k=(LONG, 90, 1), window=(40, 0), head_dim=128),
    "flags": VarlenCase(lens_q=(3, 2), lens_k=(LONG, 90), causal=(True, False)),
    "8 bits": VarlenCase(lens_q=(1, 1), lens_k=(LONG, 40), stored="e4m3", scales="heads"),
    "cache": VarlenCase(
        op="kvcache", lens_q=(2, 2, 2), lens_k=(LONG, 40, 7), entries="shuffled", keys="lists",
        leftpad=(5, 0, 3),
    ),
    "softcap": VarlenCase(lens_q=(1, 3), lens_k=(LONG, 40), softcap=20.0, sinks="bf16"),
    "tree": TreeCase(lens_q=(6, 1, 3), lens_k=(LONG, 40, 3)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_planned_calls_give_the_same_bits(case):
    check_planned(case)


@pytest.mark.parametrize("mask", [{"window": (40, 0)}, {"causal": False, "alibi": "h"}], ids=str)
def test_a_part_of_the_keys(mask):
    case = ContextCase(lens_q=(2, 1), lens_k=(LONG, 40), interleave=4, **mask)
    call, own = case.part(case.inputs(), rank=1)
    compare_planned(call, own)


@pytest.mark.emulated
@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_architectures(device, arch):
    with device.on(arch):
        check_planned(CASES["mixed"])


def test_a_plan_of_new_lengths_takes_the_place_of_the_old():
    """In one buffer, which is longer than needed, as a graph replays them."""
    buffer = torch.full([1 << 16], -1, dtype=torch.int32, device=DEVICE)
    case = CASES["cut"]
    for lens_k in (case.lens_k, (0, 0, 7, LONG), (1, 1, 1, 1)):
        check_planned(dataclasses.replace(case, lens_k=lens_k), plan=buffer)


@pytest.mark.emulated
@pytest.mark.parametrize(
    "changes",
    [{"window": (30, 0)}, {"causal": False}, {"num_splits": 1}, {"heads": 16}, {"lens_q": (9, 1)}],
    ids=str,
)
def test_a_plan_of_another_group_is_a_trap(changes):
    """Never a wrong result: heads, masks and tiles are other ones, or the bounds are."""
    case = VarlenCase(lens_q=(1, 1), lens_k=(90, 40), heads=8)
    check_trap(*(one.call(one.inputs()) for one in (case, dataclasses.replace(case, **changes))))


@pytest.mark.emulated
@pytest.mark.parametrize("changes", [{"window": (30, 0)}, {"heads": 16}], ids=str)
def test_a_plan_of_another_group_is_a_trap_to_one_sequence(changes):
    """Though its share needs no plan."""
    case = VarlenCase(lens_q=(1,), lens_k=(90,), heads=8)
    check_trap(*(one.call(one.inputs()) for one in (case, dataclasses.replace(case, **changes))))


@pytest.mark.emulated
def test_lengths_that_grew_since_the_plan_are_not_read_behind_the_last():
    """A fault of the caller, whose results are undefined: memory of others stays untouched."""
    case = VarlenCase(lens_q=(1,) * MANY, lens_k=(40,) * MANY, heads_kv=4)
    call = case.call(case.inputs())
    call.keywords["plan"] = plan_of(call)
    call.keywords["cu_seqlens_q"].zero_()
    call.run()


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["cut", "shares", "mixed"])
def test_a_graph_plans_each_replay_anew(name):
    case = CASES[name]
    call = case.call(case.inputs())
    call.keywords["plan"] = plan_of(call)

    def step():
        plan_of(call)
        call.run()

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for turn in range(3):
        lengths = call.keywords["seqused_k"]
        lengths.copy_(torch.tensor([max(0, n - 13 * turn) for n in case.lens_k]))
        call.out.buffer.fill_(math.nan)
        call.lse.fill_(math.nan)
        graph.replay()
        found = bits(call).clone()
        plan = call.keywords.pop("plan")
        call.out.buffer.fill_(math.nan)
        call.lse.fill_(math.nan)
        call.run()
        assert torch.equal(bits(call), found)
        call.keywords["plan"] = plan


def test_nothing_to_plan():
    case = VarlenCase(lens_q=(0, 0), lens_k=(3, 4))
    call = case.call(case.inputs())
    call.q = call.q[:0]
    plan = plan_of(call, plan=torch.full([1 << 15], 7, dtype=torch.int32, device=DEVICE))
    assert (plan == 7).all()
