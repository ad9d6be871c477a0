"""The suite serving: Kiln's flash_attention_varlen beside FlashAttention-3 and FlashInfer, packed
and paged."""

from __future__ import annotations

import functools
import math
from typing import Any

import exact
import flash_peers
import torch
from attention_suite import DTYPES, explained, set_count
from cells import AttentionCell
from kiln import jit
from measure import Contender, Entry, Unavailable

CACHES = {"e4m3": torch.float8_e4m3fn}


def entries(batch, short):
    """Entries for cells of the same inputs."""
    cell = batch[0]
    generator = torch.Generator(device="cuda").manual_seed(1)
    inputs = [Inputs(cell, generator) for _ in range(set_count(cell.bytes))]
    return [_entry(cell, inputs) for cell in batch]


def _starts(lengths):
    total = torch.tensor([0, *lengths], dtype=torch.int64).cumsum(0)
    return total.to(dtype=torch.int32, device="cuda")


class Inputs:
    """One set: packed queries, keys as rows and, where there are pages, in runs of pages that are
    shuffled."""

    def __init__(self, cell, generator):
        def randn(tokens, heads):
            shape = (tokens, heads, cell.dim)
            dtype = DTYPES[cell.dtype]
            return torch.randn(shape, device="cuda", dtype=dtype, generator=generator)

        self.q = randn(sum(cell.lens_q), cell.heads)
        self.rows = [randn(sum(cell.lens_k), cell.heads_kv) for _ in range(2)]
        if cell.cache:  # exact in q's dtype too
            self.rows = [x.to(CACHES[cell.cache]).to(x.dtype) for x in self.rows]
        self.out = torch.full_like(self.q, math.nan)
        self.starts_q, self.starts_k = _starts(cell.lens_q), _starts(cell.lens_k)
        self.used = torch.tensor(cell.lens_k, dtype=torch.int32, device="cuda")
        self.one = torch.ones([], device="cuda")
        self.most = max(cell.lens_q), max(cell.lens_k)
        self.keys, self.table = self.rows, None
        if cell.page:
            self._to_pages(cell, generator)
        if cell.cache:
            self.keys = [x.to(CACHES[cell.cache]) for x in self.keys]

    def _to_pages(self, cell, generator):
        counts = [-(-length // cell.page) for length in cell.lens_k]
        run = torch.arange(sum(counts), device="cuda") // cell.following  # of each page
        ranks = torch.randperm(int(run[-1]) + 1, device="cuda", generator=generator)
        order = ranks[run].argsort(stable=True)
        self.table = torch.zeros(cell.batch, max(counts), dtype=torch.int32, device="cuda")
        self.keys = [
            x.new_zeros(sum(counts), cell.page, cell.heads_kv, cell.dim) for x in self.rows
        ]
        first = row = 0
        for b, (count, length) in enumerate(zip(counts, cell.lens_k)):
            pages = order[first : first + count]
            self.table[b, :count] = pages
            at = torch.arange(length, device="cuda")
            for to, rows in zip(self.keys, self.rows):
                to[pages[at // cell.page], at % cell.page] = rows[row : row + length]
            first, row = first + count, row + length

    def keywords(self, cell):
        """Kiln's."""
        words = dict(
            cu_seqlens_q=self.starts_q, max_seqlen_q=self.most[0], max_seqlen_k=self.most[1],
            causal=True, out=self.out,
        )  # fmt: skip
        if cell.left is not None:
            words["window"] = (cell.left, 0)
        if cell.cache:
            words["k_scale"] = words["v_scale"] = self.one
        if self.table is None:
            return {**words, "cu_seqlens_k": self.starts_k}
        return {**words, "seqused_k": self.used, "block_table": self.table}


def _call(cell, x):
    words = x.keywords(cell)
    attend = functools.partial(jit.flash_attention_varlen, x.q, *x.keys, **words)
    if not cell.plan:
        return attend
    of_calls = ("out", "k_scale", "v_scale")
    of_plan = {name: word for name, word in words.items() if name not in of_calls}
    plan = functools.partial(jit.plan_attention, x.q, *x.keys, **of_plan)
    buffer = plan()
    if cell.plan == "planned":
        return functools.partial(attend, plan=buffer)
    return lambda: attend(plan=plan(plan=buffer))


def _entry(cell, inputs):
    calls = [_call(cell, x) for x in inputs]
    return Entry(
        cell=cell,
        ours=_contender(cell, calls),
        peers={
            "FA3": functools.partial(_fa3, cell, inputs),
            "FlashInfer": functools.partial(_flashinfer, cell, inputs),
            "dense": functools.partial(_dense, cell, inputs),
        },
        truth=lambda index: _truth(cell, inputs[index]),
        sets=len(inputs),
        config=explained(
            "flash_attention_varlen", inputs[0].q, *inputs[0].keys, **inputs[0].keywords(cell)
        ),
    )


def _contender(cell, calls, view=lambda result: result):
    """The calls, or replays of graphs of them."""
    if not cell.graph:
        return Contender(lambda index: calls[index](), view)
    graphs = []
    for call in calls:
        call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()
        # A graph does not keep alive what its kernels read: plans are the calls' alone.
        graphs.append((graph, result, call))

    def replay(index):
        graph, result, _ = graphs[index]
        graph.replay()
        return result

    return Contender(replay, view)


def _fa3(cell, inputs):
    if cell.plan:
        raise Unavailable("it stands beside the same call without a plan")
    if cell.cache:
        raise Unavailable("takes an 8-bit cache with 8-bit queries alone")
    attention = flash_peers.fa3_of_folder()
    options: dict[str, Any] = {"causal": True, "num_splits": 0}
    if cell.left is not None:
        options["window_size_left"], options["window_size_right"] = cell.left, 0

    def words(x):
        bounds = {"cu_seqlens_q": x.starts_q, "max_seqlen_q": x.most[0]}
        if x.table is None:
            return {**bounds, "cu_seqlens_k": x.starts_k, "max_seqlen_k": x.most[1]}
        return {**bounds, "seqused_k": x.used, "page_table": x.table}

    return _contender(
        cell, [functools.partial(attention, x.q, *x.keys, **words(x), **options) for x in inputs]
    )


def _flashinfer(cell, inputs):
    if cell.plan:
        raise Unavailable("it stands beside the same call without a plan")
    return flash_peers.flashinfer_serving(cell, inputs)


def _dense(cell, inputs):
    """Kiln's own call for equal lengths, where these are equal."""
    if len(set(cell.lens_q)) > 1 or len(set(cell.lens_k)) > 1 or cell.page or cell.cache:
        raise Unavailable("lengths differ, keys lie in pages, or they are of 8 bits")
    options: dict[str, Any] = {"causal": True}
    if cell.left is not None:
        options["window"] = (cell.left, 0)
    calls = [
        functools.partial(
            jit.flash_attention,
            *(tensor.unflatten(0, (cell.batch, -1)) for tensor in (x.q, *x.rows)),
            **options,
        )
        for x in inputs
    ]
    return _contender(cell, calls, lambda out: out.flatten(0, 1))


def _truth(cell, x):
    parts, q, k = [], 0, 0
    for len_q, len_k in zip(cell.lens_q, cell.lens_k):
        one = AttentionCell(
            1, len_q, len_k, cell.heads, cell.heads_kv, cell.dim, True, cell.left, dtype=cell.dtype
        )
        rows = (tensor[k : k + len_k][None] for tensor in x.rows)
        parts.append(exact.attention(one, x.q[q : q + len_q][None], *rows)[0])
        q, k = q + len_q, k + len_k
    return torch.cat(parts)
