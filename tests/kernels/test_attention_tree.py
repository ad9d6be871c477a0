"""Masks of trees: a sequence's new queries see some of its new keys, and all before them."""

import dataclasses

import kiln
import pytest
import torch
from case_group import CaseGroup
from grid import sized
from kiln import jit
from split_case import DIMS
from storage import DEVICE
from tree_case import TreeCase

pytestmark = pytest.mark.usefixtures("compiled", "device")

# Sequences of one query, of no keys before the new ones, of no query, with fewer keys than queries.
LONG = sized(small=500, full=4099)
SEQUENCES = {
    "few": dict(lens_q=(7, 1, 0, 4), lens_k=(LONG, 130, 9, 4), heads=4),
    "rows-32": dict(lens_q=(8, 5), lens_k=(LONG, 40), heads=8),
    "rows-64": dict(lens_q=(16, 3), lens_k=(300, LONG), heads=8),
    "mixed": dict(lens_q=(64, 1, 0, 33, 6), lens_k=(LONG, 75, 9, 33, 4), heads=4),
}


def groups():
    """Every head dim with each kind of sequences; storages and trees take turns."""
    turn = 0
    for dim, dim_v in DIMS:
        for name, sequences in SEQUENCES.items():
            turn += 1
            case = TreeCase(
                dtype=("bf16", "f16")[turn % 2], head_dim=dim, head_dim_v=dim_v,
                keys=("paged", "packed", "cache", "lists")[(turn + turn // 4) % 4],
                page=(16, 1, 7, 64)[turn % 4], tree=("ancestors", "random")[turn // 2 % 2],
                **sequences,
            )  # fmt: skip
            yield CaseGroup(f"{name}-d{dim}x{dim_v}", (case,))


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_shapes(group):
    group.check()


@pytest.mark.parametrize("tree", ["none", "all"])
@pytest.mark.parametrize("name", ["few", "mixed"])
def test_rows_that_see_no_key(name, tree):
    """Neither new ones nor, where there is none, earlier ones; and bits behind the last key."""
    TreeCase(tree=tree, **SEQUENCES[name]).check()


def test_a_tile_that_ends_with_the_first_new_key():
    """It is no full one."""
    TreeCase(tree="none", lens_q=(5,), lens_k=(127 + 5,)).check()


@pytest.mark.parametrize("words", ["uint64", "strided"])
@pytest.mark.parametrize("op,len_q", [("varlen", 64), ("kvcache", 64), ("kvcache", 1)])
def test_words(words, op, len_q):
    lengths = dict(lens_q=(len_q,) * 2, lens_k=(200, 90), heads=2)
    TreeCase(op=op, words=words, tree="random", **lengths).check()


@pytest.mark.parametrize("stored", ["e4m3", "e5m2", "int8"])
@pytest.mark.parametrize("name", ["few", "mixed"])
def test_quantised_caches(stored, name):
    case = TreeCase(stored=stored, scales="batch", page=5, **SEQUENCES[name])
    case.check()
    dataclasses.replace(case, head_dim=128, keys="cache").check()


@pytest.mark.parametrize("name", list(SEQUENCES))
def test_options(name):
    options = dict(softcap=5.0, sinks="bf16", alibi="bh", scale=-0.2)
    TreeCase(tree="random", dtype="f16", **SEQUENCES[name], **options).check()


def test_other_places_of_keys():
    lengths = dict(lens_q=(5,) * 3, lens_k=(LONG, 7, 64), heads=8)
    TreeCase(op="kvcache", entries="shuffled", leftpad=(5, 0, 40), **lengths).check()


def test_a_chain_is_a_causal_mask():
    """To the last bit, where both are decoded: they visit the same tiles of keys."""
    case = TreeCase(num_splits=1, **SEQUENCES["few"])
    given = case.inputs()
    tree = case.call(given)
    chain = (torch.tensor(2) << torch.arange(len(tree.q), device=DEVICE)) - 1
    for b in range(case.batch):
        tree.queries(tree.keywords["tree_mask"], b).copy_(chain[: case.lens_q[b]])
    tree.run()
    causal = dataclasses.replace(case, causal=True).call(given)
    del causal.keywords["tree_mask"]
    causal.run()
    tokens = sum(case.lens_q)
    assert torch.equal(tree.out.view[:tokens], causal.out.view[:tokens])
    assert torch.equal(tree.lse[:, :tokens], causal.lse[:, :tokens])


def test_without_splits_a_sequence_does_not_depend_on_others():
    case = TreeCase(num_splits=1, lens_q=(9, 64), lens_k=(LONG, 333), heads=4)
    given = case.inputs()
    call = case.call(given)
    call.run()
    for b in range(2):
        alone = dataclasses.replace(case, lens_q=case.lens_q[b:][:1], lens_k=case.lens_k[b:][:1])
        single = alone.call(given[b : b + 1])
        single.keywords["tree_mask"][: case.lens_q[b]] = call.queries(call.keywords["tree_mask"], b)
        single.run()
        assert torch.equal(single.queries(single.out.view, 0), call.queries(call.out.view, b))


def test_beside_a_variant():
    odd = jit.Variant("odd", mask="(row + kv) % 2 == 0")
    case = TreeCase(tree="random", **SEQUENCES["few"])
    given = case.inputs()
    call = case.call(given)
    call.keywords["variant"] = odd
    call.run()
    of_tree = call.options_of

    def options_of(b):
        options = of_tree(b)
        mask = options["mask"]
        return {**options, "mask": lambda at: mask(at) & ((at.row + at.kv) % 2 == 0)}

    call.options_of = options_of
    call.judge(given)


def test_hopper_takes_the_portable_kernel():
    case = TreeCase(lens_q=(64,), lens_k=(300,), heads=4)
    with kiln.device("emulator:sm_90a"):
        told = case.explain()
    assert told["path"] == "varlen"
    assert told["why"][0].endswith(": a tree masks at most 64 queries of a sequence")
