"""kiln.compat.flash_attn computes what flash-attn's public tests ask of it.

GRIDS has the parameters of their forward passes (flash-attn 2: output, varlen output, causal
varlen with pages, kvcache). What is left out is counted by reason. On the emulated device a sample
runs; on a GPU each length and head dim with the other parameters by turns, and with
KILN_TEST_FULL=1 every row.
"""

import collections
import functools
import itertools
import os

import pytest
from case_group import CaseGroup
from flash_attn_case import CacheCase, DenseCase, VarlenCase
from grid import is_full

pytestmark = pytest.mark.usefixtures("compiled", "device")

BOTH = (False, True)
LEFT_OUT = ("deterministic", "dropout_p")  # parameters that Case does not have
SHARED = {
    "dtype": ("f16", "bf16"),
    "mha_type": ("mha", "mqa", "gqa"),
    "alibi": BOTH,
    "local": BOTH,
    "causal": BOTH,
}
LENGTHS = ((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (1024, 1024),
           (1023, 1024), (1024, 1023), (2048, 2048))  # fmt: skip
CACHE_LENGTHS = ((1, 128), (1, 339), (3, 1024), (64, 800), (64, 256), (3, 799), (64, 2048),
                 (16, 20000), (128, 128))  # fmt: skip
GRIDS = {
    "output": (DenseCase, {
        **SHARED, "d": (32, 40, 59, 64, 96, 111, 128, 160, 192, 224, 256), "lengths": LENGTHS,
        "softcap": (0.0, 50.0), "packed": ("", "kv"), "deterministic": BOTH,
        "dropout_p": (0.0, 0.17),
    }),
    "varlen": (VarlenCase, {
        **SHARED, "d": (32, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256),
        "lengths": ((1, 147), *LENGTHS), "softcap": (0.0, 50.0), "packed": ("", "kv"),
        "deterministic": BOTH, "dropout_p": (0.0, 0.17),
    }),
    "pages": (VarlenCase, {
        "dtype": SHARED["dtype"], "mha_type": ("mha",), "local": BOTH, "causal": (True,),
        "d": (32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256),
        "lengths": ((127, 257), (1, 128), (256, 512), (512, 256), (1023, 1024), (128, 113)),
        "paged_kv_block_size": (None, 256, 512),
    }),
    "kvcache": (CacheCase, {
        **SHARED, "dtype": ("f16",), "d": (32, 59, 64, 80, 128, 256), "lengths": CACHE_LENGTHS,
        "num_splits": (1, 0), "new_kv": BOTH, "seqlen_new_eq_seqlen_q": BOTH,
        "rotary_interleaved": BOTH, "rotary_fraction": (0.0, 0.5, 1.0),
        "paged_kv_block_size": (None, 256), "has_leftpad": BOTH, "has_batch_idx": (False,),
    }),
}  # fmt: skip


def why_left_out(grid, row):
    """None where the row runs."""
    if row.get("dropout_p"):
        return "Kiln has no dropout"
    if row.get("deterministic"):
        return "concerns the backward pass alone"
    if grid == "kvcache":
        if not row["new_kv"] and row["rotary_fraction"]:
            return "flash-attn: no rotation without new keys"
        if row["has_leftpad"] and row["paged_kv_block_size"]:
            return "flash-attn: no left padding in pages"
        if row["d"] % 8:
            return "a cache's head dim is a multiple of 8"
    return None


def rows_of(grid):
    _, axes = GRIDS[grid]
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values))


def turns_of(grid):
    """Each pair of head dim and lengths twice, with the values of the other parameters by turns."""
    _, axes = GRIDS[grid]
    others = [name for name in axes if name not in ("d", "lengths", *LEFT_OUT)]
    pairs = itertools.product(axes["d"], axes["lengths"], range(2))
    for turn, (d, lengths, _) in enumerate(pairs):
        yield {"d": d, "lengths": lengths, **{
            name: axes[name][(turn // (i + 1) + i) % len(axes[name])]
            for i, name in enumerate(others)
        }}  # fmt: skip


FEW = {
    "output": [
        dict(causal=True, lengths=(113, 203)),
        dict(causal=True, d=59, mha_type="mqa", packed="kv", lengths=(128, 217)),
        dict(local=True, alibi=True, dtype="f16", mha_type="mha", lengths=(108, 256)),
        dict(softcap=50.0, mha_type="mha", packed="kv", lengths=(113, 211)),
    ],
    "varlen": [
        dict(causal=True, lengths=(113, 203)),
        dict(causal=True, d=59, mha_type="mha", packed="kv", lengths=(113, 211)),
        dict(local=True, alibi=True, dtype="f16", softcap=50.0, lengths=(1, 147)),
    ],
    "pages": [
        dict(causal=True, mha_type="mha", paged_kv_block_size=256, lengths=(128, 113)),
        dict(causal=True, local=True, mha_type="mha", dtype="f16", paged_kv_block_size=512,
             lengths=(1, 128)),
    ],
    "kvcache": [
        dict(dtype="f16", causal=True, new_kv=True, rotary_fraction=0.5, rotary_interleaved=True,
             lengths=(3, 799)),
        dict(dtype="f16", new_kv=True, rotary_fraction=1.0, paged_kv_block_size=256,
             mha_type="mqa", lengths=(64, 256), seqlen_new_eq_seqlen_q=False),
        dict(dtype="f16", has_leftpad=True, causal=True, num_splits=1, lengths=(1, 339)),
        dict(dtype="f16", local=True, alibi=True, new_kv=True, mha_type="mha", lengths=(1, 128)),
    ],
}  # fmt: skip


def groups():
    every = os.environ.get("KILN_TEST_FULL") == "1" and is_full()
    for grid, (case, _) in GRIDS.items():
        chosen = (rows_of if every else turns_of)(grid) if is_full() else FEW[grid]
        by_name = collections.defaultdict(list)
        for row in chosen:
            if not is_full() or why_left_out(grid, row) is None:
                own = {n: x for n, x in row.items() if n not in LEFT_OUT}
                name = f"{grid}-d{own.get('d', 64)}"
                if every:  # thousands of rows of one head dim, which several processes share
                    name += "-{}x{}".format(*row["lengths"])
                by_name[name].append(case(**own))
        yield from (CaseGroup(name, tuple(cases)) for name, cases in by_name.items())


@pytest.mark.parametrize("group", list(groups()), ids=str)
def test_public_parameters(group):
    group.check()


@functools.lru_cache(maxsize=1)
def counted():
    return {
        grid: collections.Counter(why_left_out(grid, row) for row in rows_of(grid))
        for grid in GRIDS
    }


def test_what_is_left_out_is_counted():
    """Kiln lacks dropout and odd head dims of caches; the rest is no question of its own."""
    dropout, backward = "Kiln has no dropout", "concerns the backward pass alone"
    assert counted() == {
        "output": {None: 21120, dropout: 42240, backward: 21120},
        "varlen": {None: 23232, dropout: 46464, backward: 23232},
        "pages": {None: 864},
        "kvcache": {
            None: 103680,
            "a cache's head dim is a multiple of 8": 20736,
            "flash-attn: no left padding in pages": 41472,
            "flash-attn: no rotation without new keys": 82944,
        },
    }
