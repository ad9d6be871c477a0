"""The log-sum-exp of every call that returns one: what it is, and that shards merge by it.

It is the natural logarithm of the sum of exp(logit) over the keys that a row sees, without the
sink; kiln.compat.flash_attn, like flash-attn, counts the sink, too.
"""

import itertools
import math

import pytest
import torch
from grid import sized
from kiln import jit
from lse_entries import ENTRIES, State, inputs, some_sinks

pytestmark = pytest.mark.usefixtures("compiled", "device")

LEN_K = sized(small=21, full=700)
SHARDS = ((0, LEN_K // 3), (LEN_K // 3, LEN_K // 3), (LEN_K // 3, LEN_K))  # one has no keys


def of_every_entry(test):
    """With few queries and, on a GPU, with so many that other kernels compute them."""
    queries = pytest.mark.parametrize("len_q", sized(small=(3,), full=(3, 90)))
    return queries(pytest.mark.parametrize("entry", ENTRIES, ids=str)(test))


def shards_of(entry, q, k, v, with_sinks=None):
    """The state of each shard; the call of shard with_sinks is given them."""
    states = []
    for shard, (begin, end) in enumerate(SHARDS):
        sinks = some_sinks() if shard == with_sinks else None
        states.append(entry(q, k[:, begin:end], v[:, begin:end], sinks=sinks))
    return states


def merged(states, base="e", layout="ht", **options):
    """The State that jit.merge_states makes of several, through another base and layout."""
    unit = math.log(2) if base == "2" else 1.0
    lses = torch.stack([state.lse for state in states]) / unit
    outs = torch.stack([state.out for state in states])
    given = lses.mT.contiguous() if layout == "th" else lses
    options.update(base=base, layout=layout, return_lse=True)
    out, lse = jit.merge_states(outs, given, **options)
    return State(out, (lse.mT if layout == "th" else lse) * unit)


@of_every_entry
def test_the_natural_logarithm_of_the_sum(entry, len_q):
    q, k, v = inputs(len_q, LEN_K)
    entry.judge("all keys", entry(q, k, v), q, k, v)


@of_every_entry
def test_rows_without_keys(entry, len_q):
    """Some rows see none, or the sequence has none."""
    for len_k in (len_q - 1, 0):
        q, k, v = inputs(len_q, len_k)
        state = entry(q, k, v, causal=True)
        entry.judge(f"{len_k} keys", state, q, k, v, causal=True)
        empty = torch.arange(len(state.out), device=q.device) % len_q < len_q - len_k
        assert (state.out[empty] == 0).all() and (state.lse[:, empty] == -math.inf).all()
        assert torch.isfinite(state.lse[:, ~empty]).all()


@of_every_entry
def test_sinks(entry, len_q):
    """They are in the result everywhere, and in the log-sum-exp where the entry counts them."""
    q, k, v = inputs(len_q, LEN_K)
    sinks = some_sinks()
    entry.judge("sinks", entry(q, k, v, sinks=sinks), q, k, v, sinks=sinks)


@of_every_entry
def test_shards_merge_to_the_whole(entry, len_q):
    q, k, v = inputs(len_q, LEN_K)
    states = shards_of(entry, q, k, v)
    for base, layout in itertools.product(("e", "2"), ("ht", "th")):
        entry.judge(f"merged {base} {layout}", merged(states, base, layout), q, k, v)


@of_every_entry
def test_sinks_are_counted_once(entry, len_q):
    """By the merge where log-sum-exps lack them, otherwise by any one shard: an empty one, too."""
    q, k, v = inputs(len_q, LEN_K)
    sinks = some_sinks()
    if entry.counts_sinks:
        found = [merged(shards_of(entry, q, k, v, shard)) for shard in range(len(SHARDS))]
    else:
        found = [merged(shards_of(entry, q, k, v), sinks=sinks)]
    for state in found:
        entry.judge("sinks of the merged", state, q, k, v, sinks=sinks)
