"""A batch of requests as a serving engine has it, prefill beside decode, and what attention gives
for it, computed densely in float32."""

import random

import torch

REQUESTS = ((37, 1), (0, 19), (12, 5), (0, 0), (70, 1))  # keys before, new tokens


def pages_of(lengths, page_size, free, width):
    """Returns a block table [requests, width] of pages that nobody else has; the rest is noise."""
    table = torch.full((len(lengths), width), 10**6, dtype=torch.int32)
    for row, length in enumerate(lengths):
        for column in range(-(-length // page_size)):
            table[row, column] = free.pop()
    return table


def slots_of(table, page_size, row, positions):
    """Returns the slots of positions of a request."""
    where = [int(table[row, at // page_size]) * page_size + at % page_size for at in positions]
    return torch.tensor(where, dtype=torch.int64)


class Batch:
    """Random queries, keys and values of REQUESTS, with rows of padding behind them."""

    def __init__(self, heads, heads_kv, head_dim, dtype=torch.bfloat16, padding=3, seed=None):
        self.seed = random.randrange(2**31) if seed is None else seed
        generator = torch.Generator().manual_seed(self.seed)
        self.before = [before for before, _ in REQUESTS]
        self.new = [new for _, new in REQUESTS]
        self.lengths = [before + new for before, new in REQUESTS]
        self.count = sum(self.new)

        def normal(tokens, some_heads):
            return torch.randn(tokens, some_heads, head_dim, generator=generator).to(dtype)

        self.query = normal(self.count + padding, heads)
        self.keys = [normal(length, heads_kv) for length in self.lengths]
        self.values = [normal(length, heads_kv) for length in self.lengths]
        self.starts = torch.tensor([0, *self.new]).cumsum(0).to(torch.int32)
        self.seq_lens = torch.tensor(self.lengths, dtype=torch.int32)

    def packed(self, tensors, first):
        """Returns the keys or values before the new ones, or the new ones and padding, packed."""
        parts = zip(tensors, self.before)
        rows = torch.cat([x[:n] if first else x[n:] for x, n in parts])
        padding = 0 if first else self.query.shape[0] - self.count
        return torch.cat([rows, rows.new_full((padding, *rows.shape[1:]), float("nan"))])

    def positions(self, first):
        """Returns (request, positions) of what packed() returns, in its order."""
        for row, (before, length) in enumerate(zip(self.before, self.lengths)):
            yield row, range(before) if first else range(before, length)


def attention(batch, causal=True, flags=None, **options):
    """Returns [new tokens, heads, head dim] in float32."""
    outs = []
    for row, (start, end) in enumerate(zip(batch.starts[:-1].tolist(), batch.starts[1:].tolist())):
        if start == end:
            continue
        q = batch.query[start:end].float()
        keys, values = batch.keys[row].float(), batch.values[row].float()
        sees_past_only = causal if flags is None else bool(flags[row])
        outs.append(_one(q, keys, values, sees_past_only, **options))
    return torch.cat(outs)


def _one(
    q, keys, values, causal, scale=None, window=(-1, -1), softcap=0.0, slopes=None, sinks=None
):
    groups = q.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(groups, 1) for x in (keys, values))
    logits = torch.einsum("qhd,khd->hqk", q, keys) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    distance = torch.arange(len(q))[:, None] + len(keys) - len(q) - torch.arange(len(keys))
    if slopes is not None:
        logits = logits - torch.tensor(slopes)[:, None, None] * distance.abs()
    hidden = (distance < 0) & causal
    if window[0] >= 0:
        hidden |= distance > window[0]
    if window[1] >= 0:
        hidden |= -distance > window[1]
    logits = logits.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        logits = torch.cat([logits, sinks.float()[:, None, None].expand(-1, len(q), 1)], 2)
    weights = torch.softmax(logits, -1)[..., : len(keys)]
    return torch.einsum("hqk,khd->qhd", weights, values)
