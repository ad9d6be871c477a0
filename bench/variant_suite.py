"""The suite variant: masks and biases of a user's own, beside built-in ones and FlexAttention."""

from __future__ import annotations

import functools
import math

import torch
from attention_suite import DTYPES, explained, set_count
from cells import OURS
from exact import SCORES, full_precision
from kiln import jit
from measure import Contender, Entry, Unavailable
from recipes import recipe
from variant_cells import BLOCK_MASK, BUILT_IN, CALLABLE, CUT, NEAR

# Groups in which FlexAttention, which compiles for seconds a shape, takes part.
FLEX = (
    "masks D128 4k", "masks D128 16k", "D128 causal 4k", "D128 causal 5000, 32/8",
    "sparse masks, 16k",
)  # fmt: skip
FLEX_TILES = 128  # rows and keys of a block of PyTorch's masks, its own default


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    generator = torch.Generator(device="cuda").manual_seed(1)

    def randn(length, heads):
        shape = (cell.batch, length, heads, cell.dim)
        return torch.randn(shape, device="cuda", dtype=DTYPES[cell.dtype], generator=generator)

    def one_set():
        return randn(cell.len_q, cell.heads), *(randn(cell.len_kv, cell.heads_kv) for _ in "kv")

    inputs = [one_set() for _ in range(set_count(cell.bytes))]
    last = {cell.recipe: cell for cell in batch}
    flex = not short and cell.group in FLEX
    return [_entry(cell, inputs, flex and last[cell.recipe] is cell) for cell in batch]


def _entry(cell, inputs, flex):
    chosen = recipe(cell)
    outs = [torch.full_like(q, math.nan) for q, _, _ in inputs]
    if cell.way in (CALLABLE, BLOCK_MASK):
        ours, config = _flex_of_kiln(cell, chosen, inputs), None
    else:
        keywords = chosen.built_in
        if cell.way not in (BUILT_IN, CUT):
            keywords = {**chosen.keywords, "variant": chosen.variant}
        sets = [(q, *map(_cut(cell), (k, v))) for q, k, v in inputs]

        def call(index):
            return jit.flash_attention(*sets[index], out=outs[index], **keywords)

        ours = Contender(call)
        config = explained("flash_attention", *sets[0], out=outs[0], **keywords)
    return Entry(
        cell=cell,
        ours=ours,
        peers={"FlexAttention": functools.partial(_flex_of_torch, cell, chosen, inputs, flex)},
        truth=lambda index: _truth(cell, chosen, *inputs[index]),
        sets=len(inputs),
        config=config,
    )


def _cut(cell):
    """The keys that the window of the last queries leaves, where a cell asks for them alone."""
    if cell.way != CUT:
        return lambda keys: keys
    return lambda keys: keys[:, cell.len_kv - cell.len_q - NEAR :]


def _heads_first(x):
    return x.transpose(1, 2)


def _block_mask(cell, chosen):
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(
        chosen.mask_mod, None, None, cell.len_q, cell.len_kv, device="cuda", BLOCK_SIZE=FLEX_TILES
    )


def _flex_of_kiln(cell, chosen, inputs):
    sets = [tuple(_heads_first(x) for x in tensors) for tensors in inputs]
    options = {"enable_gqa": cell.heads != cell.heads_kv}
    if cell.way == BLOCK_MASK:
        options["block_mask"] = _block_mask(cell, chosen)
    else:
        options["mask_mod"] = chosen.mask_mod

    def call(index):
        q, k, v = sets[index]
        return jit.flex_attention(q, k, v, chosen.score_mod, **options)

    return Contender(call, _heads_first)


def _flex_of_torch(cell, chosen, inputs, wanted):
    if not wanted:
        raise Unavailable("compiles for seconds a shape: timed in few groups, once for each mask")
    from torch.nn.attention import flex_attention as flex

    torch._dynamo.reset()  # its limit of recompilations is for the process
    sets = [tuple(_heads_first(x) for x in tensors) for tensors in inputs]
    mask = _block_mask(cell, chosen)
    compiled = torch.compile(flex.flex_attention, dynamic=False, fullgraph=True)
    options = {"block_mask": mask, "enable_gqa": cell.heads != cell.heads_kv}
    return Contender(
        lambda index: compiled(*sets[index], chosen.score_mod, **options), _heads_first
    )


def _truth(cell, chosen, q, k, v):
    """[batch, length, heads, dim] in float32, by the recipe's callables."""
    ratio = cell.heads // cell.heads_kv
    out = torch.empty(q.shape, dtype=torch.float32, device="cuda")
    step = max(1, min(cell.len_q, SCORES // (cell.heads * cell.len_kv)))
    head = torch.arange(cell.heads, device="cuda").view(-1, 1, 1)
    key = torch.arange(cell.len_kv, device="cuda").view(1, 1, -1)
    with full_precision():
        for b in range(cell.batch):
            keys, values = (
                x[b].transpose(0, 1).float().repeat_interleave(ratio, 0) for x in (k, v)
            )
            for top in range(0, cell.len_q, step):
                row = torch.arange(top, min(top + step, cell.len_q), device="cuda").view(1, -1, 1)
                rows = (q[b, top : top + step].float() * cell.dim**-0.5).transpose(0, 1)
                scores = rows @ keys.mT
                if chosen.score_mod:
                    scores = chosen.score_mod(scores, b, head, row, key)
                scores.masked_fill_(~chosen.mask_mod(b, head, row, key), -math.inf)
                out[b, top : top + step] = (torch.softmax(scores, -1) @ values).transpose(0, 1)
    return out


def compare(results):
    """Adds to each result the time of its group's first cell over its own, also for each pair that
    is seen, and the time of the same attention by keywords, or of keys cut beforehand.

    A group's cells took turns with each other.
    """
    groups: dict[str, list[dict]] = {}
    for result in results:
        if OURS in result["times"]:
            groups.setdefault(result["group"], []).append(result)
    for members in groups.values():
        ways = {(r["shape"]["recipe"], r["shape"]["way"]): r for r in members}
        first = members[0]
        for result in members:
            shape, time = result["shape"], _median(result)
            against = result["against_ways"] = {"first": _median(first) / time}
            against["first_by_pairs"] = against["first"] * result["flops"] / first["flops"]
            for way in (BUILT_IN, CUT):
                if shape["way"] != way and (shape["recipe"], way) in ways:
                    against["same"] = _median(ways[shape["recipe"], way]) / time


def _median(result):
    return result["times"][OURS]["median_us"]
