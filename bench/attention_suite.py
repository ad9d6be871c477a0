"""The suites attention, decode and window: Kiln's calls, their inputs, and who is beside them."""

from __future__ import annotations

import math

import exact
import kiln
import peers
import torch
from cells import OURS, AttentionCell, touched_pairs, touched_tiles
from kiln import jit
from measure import Contender, Entry

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
BYTES = {"e4m3": torch.float8_e4m3fn}  # inputs of 8 bits, whose outputs are bf16
SETS = 3  # of inputs, in rotation
INPUT_BYTES = 8 << 30  # of all sets together
FLEX = {"D128 full", "D128 causal", "D128 causal softcap", "S 8k"}  # groups
FLEX_LABELS = {"4k", "window 1024"}


def set_count(bytes_of_one):
    """As many sets as fit the bound and an eighth of the memory, at least one."""
    memory = torch.cuda.get_device_properties(0).total_memory
    return max(1, min(SETS, int(min(INPUT_BYTES, memory // 8) // bytes_of_one)))


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    generator = torch.Generator(device="cuda").manual_seed(1)

    def randn(length, heads, dim):
        shape = (cell.batch, length, heads, dim)
        dtype = DTYPES.get(cell.dtype, torch.bfloat16)
        drawn = torch.randn(shape, device="cuda", dtype=dtype, generator=generator)
        return drawn.to(BYTES[cell.dtype]) if cell.dtype in BYTES else drawn

    def one_set():
        keys = cell.len_kv, cell.heads_kv
        dims = cell.dim, cell.value_dim
        return randn(cell.len_q, cell.heads, cell.dim), *(randn(*keys, dim) for dim in dims)

    inputs = [one_set() for _ in range(set_count(cell.bytes))]
    return [_entry(cell, inputs, short) for cell in batch]


def options(cell):
    """Kiln's keywords."""
    chosen = {"causal": cell.causal}
    if cell.window:
        chosen["window"] = cell.window
    if cell.softcap:
        chosen["softcap"] = cell.softcap
    return chosen


def _entry(cell, inputs, short):
    keywords = options(cell)
    dtype = DTYPES.get(cell.dtype, torch.bfloat16)
    outs = [
        q.new_full((*q.shape[:-1], cell.value_dim), math.nan, dtype=dtype) for q, _, _ in inputs
    ]

    def call(index):
        return jit.flash_attention(*inputs[index], out=outs[index], **keywords)

    flex = not short and cell.group in FLEX and cell.label in FLEX_LABELS
    return Entry(
        cell=cell,
        ours=Contender(call),
        peers=peers.attention(cell, inputs, flex),
        truth=lambda index: exact.attention(cell, *inputs[index]),
        sets=len(inputs),
        config=explained("flash_attention", *inputs[0], out=outs[0], **keywords),
    )


def explained(op, *arguments, **keywords):
    """What Kiln chooses, for the record; a cell that Kiln refuses fails when it is called."""
    try:
        answer = kiln.explain(op, *arguments, **keywords)
    except Exception:
        return None
    return {name: answer.get(name) for name in ("path", "config", "splits")}


def compare_windows(results):
    """Adds, to each window's result, its time over the dense time's share of keys and of tiles.

    1 = the window costs what its keys cost in the dense call of the same shape.
    """
    dense = {
        (result["group"], result["label"]): result
        for result in results
        if result["shape"]["left"] is None and OURS in result["times"]
    }
    for result in results:
        if result["shape"]["left"] is None or OURS not in result["times"]:
            continue
        against = result["against_dense"] = {}
        for mask in ("causal", "full"):
            if (result["group"], mask) not in dense:
                continue
            base = dense[result["group"], mask]
            ratio = _median(result) / _median(base)
            pairs, tiles = _share(result, base, touched_pairs), _share(result, base, touched_tiles)
            against[mask] = {
                "share_of_keys": pairs,
                "share_of_tiles": tiles,
                "over_keys": ratio / pairs,
                "over_tiles": ratio / tiles,
            }


def _median(result):
    return result["times"][OURS]["median_us"]


def _share(result, base, count):
    def touched(shape):
        cell = AttentionCell(**shape)
        return count(cell.len_q, cell.len_kv, cell.causal, cell.left)

    return touched(result["shape"]) / touched(base["shape"])
