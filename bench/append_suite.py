"""The suite append: Kiln's append_kv beside a copy of the same bytes and PyTorch's operations.

The inputs are slices of one projection's rows, the caches share rows as vLLM's do (a token's keys,
then its values, head by head), and tokens follow each other in pages of any order.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from attention_suite import explained, set_count
from copies import copy
from kiln import jit
from measure import Contender, Entry
from norm_suite import DTYPES

CACHES = DTYPES | {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "int8": torch.int8}
SCALE = 0.05  # of 8-bit caches: normal numbers fill them
POSITIONS = 8192


def entries(batch, short):
    """Entries for cells of the same inputs."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    sets = set_count(max(cell.bytes for cell in batch))
    calls = [[_Call.made(cell, generator) for _ in range(sets)] for cell in batch]
    return [_entry(cell, inputs) for cell, inputs in zip(batch, calls)]


def _entry(cell, calls):
    def ours(index):
        call = calls[index]
        jit.append_kv(*call.tensors, **call.words)
        return call

    first = calls[0]
    return Entry(
        cell=cell,
        ours=Contender(ours, view=_Call.result),
        peers={
            "copy": lambda: copy(cell.bytes, len(calls), first.truth),
            "PyTorch": functools.partial(pytorch, calls),
        },
        truth=lambda index: calls[index].truth(),
        sets=len(calls),
        config=explained("append_kv", *first.tensors, **first.words),
    )


def pytorch(calls):
    """As a model without a kernel for it does, to outputs of its own: Kiln's are checked again when
    all have been timed, and PyTorch rounds some elements differently."""
    calls = [call.with_other_outputs() for call in calls]

    def call(index):
        calls[index].append_by_pytorch()
        return calls[index]

    return Contender(call, view=_Call.result)


@dataclasses.dataclass
class _Call:
    cell: Any
    tensors: tuple  # key, value, both caches, the slots
    words: dict
    query: torch.Tensor | None

    @classmethod
    def made(cls, cell, generator):
        heads = cell.heads + 2 * cell.heads_kv
        shape = (cell.tokens, heads, cell.head_dim)
        rows = torch.randn(shape, device="cuda", dtype=DTYPES[cell.dtype], generator=generator)
        query, key, value = rows.split([cell.heads, cell.heads_kv, cell.heads_kv], 1)
        slots = _slots(cell, generator)
        words = {}
        if cell.cache not in DTYPES:
            words = dict.fromkeys(("k_scale", "v_scale"), torch.tensor(SCALE, device="cuda"))
        if cell.heads:
            weight = torch.rand(cell.head_dim, device="cuda", generator=generator) + 0.5
            weight = weight.to(DTYPES[cell.dtype])
            words |= {"query": query, "query_out": torch.empty_like(query, memory_format=FLAT)}
            words |= {"q_weight": weight, "k_weight": weight, **_tables(cell)}
        return cls(cell, (key, value, *_caches(cell), slots), words, query if cell.heads else None)

    def with_other_outputs(self):
        key, value, _, _, slots = self.tensors
        words = dict(self.words)
        if self.query is not None:
            words["query_out"] = torch.empty_like(self.words["query_out"])
        return _Call(self.cell, (key, value, *_caches(self.cell), slots), words, self.query)

    def _computed(self, x):
        """Normed and rotated, in float32."""
        x = x.float()
        if not self.cell.heads:
            return x
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        x = x * scale * self.words["k_weight"].float()
        positions = self.words["positions"]
        cos, sin = (self.words[name][positions].unsqueeze(1) for name in ("cos", "sin"))
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def _quantised(self, x):
        dtype = CACHES[self.cell.cache]
        if self.cell.cache in DTYPES:
            return x.to(dtype)
        x = x.float() / SCALE
        most = 127 if dtype == torch.int8 else torch.finfo(dtype).max
        x = x.clamp(-most, most)
        return (x.round() if dtype == torch.int8 else x).to(dtype)

    def _places(self):
        slots = self.tensors[4]
        return slots // self.cell.page_size, slots % self.cell.page_size

    def append_by_pytorch(self):
        key, value, k_cache, v_cache, _ = self.tensors
        places = self._places()
        for cache, x in ((k_cache, self._computed(key)), (v_cache, value)):
            _bytes(cache)[places] = _bytes(self._quantised(x))
        if self.query is not None:
            self.words["query_out"].copy_(self._computed(self.query))

    def _parts(self, keys, values, query):
        """The tensors to compare. A rounding error before an 8-bit one moves some elements by a
        step, so that keys are left out where both are."""
        parts = [values] if self.cell.heads and self.cell.cache not in DTYPES else [keys, values]
        parts += [] if query is None else [query]
        return torch.cat([part.float().flatten(1) for part in parts], 1)

    def result(self):
        places = self._places()
        keys, values = (_bytes(cache)[places].view(cache.dtype) for cache in self.tensors[2:4])
        return self._parts(keys, values, self.words.get("query_out"))

    def truth(self):
        key, value, *_ = self.tensors
        query = None if self.query is None else self._computed(self.query)
        keys = self._computed(key)
        exact = self.cell.cache in DTYPES
        return self._parts(
            keys if exact else self._quantised(keys), value if exact else self._quantised(value),
            query,
        )  # fmt: skip


FLAT = torch.contiguous_format


def _bytes(x):
    """8-bit elements as PyTorch can index them."""
    return x.view(torch.uint8) if x.element_size() == 1 else x


def _slots(cell, generator):
    pages = torch.randperm(2 * (cell.tokens // cell.page_size), device="cuda", generator=generator)[
        : cell.tokens // cell.page_size
    ]
    inside = torch.arange(cell.page_size, device="cuda")
    return (pages[:, None] * cell.page_size + inside).flatten()


def _caches(cell):
    pages = 2 * (cell.tokens // cell.page_size)
    order = (cell.heads_kv, cell.page_size) if cell.hnd else (cell.page_size, cell.heads_kv)
    item = CACHES[cell.cache].itemsize
    memory = torch.zeros(pages, *order, 2 * cell.head_dim * item, dtype=torch.uint8, device="cuda")
    rows = memory.view(CACHES[cell.cache])
    return (rows.transpose(1, 2) if cell.hnd else rows).split(cell.head_dim, -1)


def _tables(cell):
    rates = 1e6 ** -(torch.arange(0, cell.head_dim, 2, device="cuda") / cell.head_dim)
    positions = torch.arange(cell.tokens, device="cuda") % POSITIONS
    angles = torch.arange(POSITIONS, device="cuda")[:, None] * rates
    return {"positions": positions, "cos": angles.cos(), "sin": angles.sin()}
