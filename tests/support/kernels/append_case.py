"""One append to a paged cache: its inputs, the call itself and the judgement.

What is neither normed nor rotated has the bits of PyTorch's conversion. Else: bf16 and f16 within
one unit in the last place of the float64 result; quantised elements within half a step, and a
little. All bytes of the caches that no slot names keep their values.
"""

from __future__ import annotations

import dataclasses
import math

import kiln
import torch
from kiln import jit
from named_case import NamedCase
from reference import rotary
from storage import DEVICE, DTYPES, F8_DTYPES, filled, place, randn

CACHE_DTYPES = {**DTYPES, **F8_DTYPES, "int8": torch.int8}
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
# Of the numbers around `value`, the distance; below `small` it does not shrink further.
STEPS = {torch.float8_e4m3fn: (2.0**-3, 2.0**-6), torch.float8_e5m2: (2.0**-2, 2.0**-14)}


@dataclasses.dataclass(frozen=True)
class AppendCase(NamedCase):
    dtype: str = "bf16"
    cache: str = ""  # a dtype, "" = dtype
    tokens: int = 5
    heads: int = 2  # of key and value
    dim: int = 64
    dim_v: int = 0  # 0 = dim
    pages: int = 3
    page_size: int = 4
    layout: str = "plain"  # of the caches, see caches()
    storage: str = "plain"  # of key and value, and of query
    slots: tuple = ()  # () = any that are free
    queries: int = 0  # heads of the query
    query_out: str = "guarded"  # a storage, "query" or "" = a new tensor
    q_weight: str = ""  # a dtype
    k_weight: str = ""
    rotary: int = 0
    table: str = "f32"
    interleaved: bool = False
    positions: str = "int64"
    scales: str = ""  # "", "scalar", "one", "heads" or "expanded"
    scale: float = 1.0  # of the elements

    @property
    def value_dim(self):
        return self.dim_v or self.dim

    @property
    def cache_dtype(self):
        return CACHE_DTYPES[self.cache or self.dtype]

    def slot_list(self):
        if self.slots:
            return list(self.slots)
        generator = torch.Generator().manual_seed(3)
        order = torch.randperm(self.pages * self.page_size, generator=generator)
        return order[: self.tokens].tolist()

    def caches(self):
        """The bytes of both caches, and two views of them."""
        shape = [self.pages, self.page_size, self.heads]
        dims, item = (self.dim, self.value_dim), self.cache_dtype.itemsize
        generator = torch.Generator().manual_seed(4)

        def garbage(*shape):
            bytes_of = (*shape[:-1], shape[-1] * item)
            made = torch.randint(0, 256, bytes_of, dtype=torch.uint8, generator=generator)
            return made.to(DEVICE)

        if self.layout == "plain":
            parts = [garbage(*shape, dim) for dim in dims]
            return parts, [part.view(self.cache_dtype) for part in parts]
        if self.layout == "rows":  # keys and values of a token's head side by side
            whole = garbage(*shape, sum(dims))
        elif self.layout == "hnd":  # and heads before tokens
            whole = garbage(self.pages, self.heads, self.page_size, sum(dims))
        elif self.layout == "layers":  # and the pages of other layers between
            whole = garbage(self.pages, 3, *shape[1:], sum(dims))
        elif self.layout == "odd":  # an element beside aligned
            whole = garbage(*shape, sum(dims) + 1)
        else:
            raise ValueError(f"unknown layout {self.layout!r}")
        view = whole.view(self.cache_dtype)
        view = view.transpose(1, 2) if self.layout == "hnd" else view
        view = view[:, 1] if self.layout == "layers" else view
        return [whole], [view[..., : self.dim], view[..., self.dim : sum(dims)]]

    def inputs(self, seed=0):
        """key, value, query or None, the slots, and the keyword arguments."""
        dtype = DTYPES[self.dtype]

        def heads_of(heads, dim, seed):
            values = randn([self.tokens, heads, dim], torch.float32, seed, self.scale)
            return filled(self.storage, values.to(dtype))

        key = heads_of(self.heads, self.dim, seed + 1)
        value = heads_of(self.heads, self.value_dim, seed + 2)
        query = heads_of(self.queries, self.dim, seed + 3) if self.queries else None
        slots = torch.tensor(self.slot_list(), dtype=torch.int64, device=DEVICE)
        words = {}
        for i, name in enumerate(("q_weight", "k_weight")):
            if weight := getattr(self, name):
                words[name] = randn([self.dim], DTYPES[weight], seed + 4 + i)
        if self.rotary:
            words |= self._tables(seed)
        for i, name in enumerate(("k_scale", "v_scale") if self.scales else ()):
            words[name] = self._scale(0.03 + 0.02 * i)
        return key, value, query, slots, words

    def _tables(self, seed):
        count = 37
        angles = torch.rand([count, self.rotary // 2], generator=torch.Generator().manual_seed(6))
        angles = (angles * 6).to(DEVICE)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + 7))
        positions = order.repeat(1 + self.tokens // count)[: self.tokens].to(DEVICE)
        # One table behind the other, as engines keep them.
        both = torch.cat([angles.cos(), angles.sin()], -1).to(DTYPES[self.table])
        return {
            "positions": positions.to(getattr(torch, self.positions)),
            "cos": both[:, : self.rotary // 2],
            "sin": both[:, self.rotary // 2 :],
            "interleaved": self.interleaved,
        }

    def _scale(self, least):
        if self.scales == "heads":
            return least * torch.arange(1.0, self.heads + 1, device=DEVICE)
        one = torch.tensor(least, device=DEVICE)
        if self.scales == "expanded":
            return one.expand(self.heads)
        return one if self.scales == "scalar" else one.view(1)

    def explain(self):
        key, value, query, slots, words = self.inputs()
        _, caches = self.caches()
        return kiln.explain("append_kv", key, value, *caches, slots, query=query, **words)

    def run(self):
        key, value, query, slots, words = self.inputs()
        _, caches = self.caches()
        jit.append_kv(key, value, *caches, slots, query=query, **words)

    def check(self, seed=0):
        key, value, query, slots, words = self.inputs(seed)
        buffers, caches = self.caches()
        placed = None
        if query is not None:
            truth = self._computed(query, words.get("q_weight"), words)
            if self.query_out == "query":
                words["query_out"] = query
            elif self.query_out:
                placed = place(self.query_out, list(query.shape), query.dtype)
                words["query_out"] = placed.view
        kept = [buffer.clone() for buffer in buffers]
        given = query.clone() if query is not None else None
        out = jit.append_kv(key, value, *caches, slots, query=query, **words)
        if query is None:
            assert out is None
        else:
            if self.query_out:
                assert out is words["query_out"]
            self._judge_query(out, truth, given, len(slots))
            if placed is not None:
                placed.check_untouched(str(self))
        self._judge_cache(caches[0], self._computed(key, words.get("k_weight"), words), key,
                          words.get("k_scale"), bool(self.k_weight or self.rotary))  # fmt: skip
        self._judge_cache(caches[1], value.double(), value, words.get("v_scale"), False)
        self._judge_untouched(buffers, kept, caches)
        return caches

    def _computed(self, x, weight, words):
        x = x.double()
        if weight is not None:
            scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + words.get("eps", 1e-6))
            x = x * scale * weight.double()
        if not self.rotary:
            return x
        rows = words["positions"].long().clamp(0, len(words["cos"]) - 1)
        return rotary(x, words["cos"].double()[rows], words["sin"].double()[rows], self.interleaved)

    def _judge_query(self, out, truth, given, count):
        if self.q_weight or self.rotary:
            judge_half(f"query, {self}", out[:count], truth[:count])
        else:
            assert torch.equal(out[:count], given[:count]), f"query, {self}: other bits"

    def _written(self):
        """(token, page, place) of the slots that are in the cache."""
        for token, slot in enumerate(self.slot_list()):
            if 0 <= slot < self.pages * self.page_size:
                yield token, slot // self.page_size, slot % self.page_size

    def _judge_cache(self, cache, truth, x, scale, is_computed):
        what = f"cache, {self}"
        divisor = torch.ones([], device=DEVICE) if scale is None else scale.float().view(-1, 1)
        for token, page, spot in self._written():
            stored = cache[page, spot]
            if not is_computed:
                expected = quantized(x[token].float() / divisor, cache.dtype)
                same = same_bits(stored, expected)
                assert same.all(), f"{what}: token {token}, {int((~same).sum())} with other bits"
            elif cache.dtype in DTYPES.values():
                judge_half(what, stored, truth[token])
            else:
                judge_steps(what, stored, truth[token] / divisor.double())

    def _judge_untouched(self, buffers, kept, caches):
        """Restores what was to be written, after which nothing may differ."""
        originals = [torch.empty_like(buffer) for buffer in buffers]
        for original, copy in zip(originals, kept):
            original.copy_(copy)
        for cache in caches:
            buffer, copy = next(
                (b, c) for b, c in zip(buffers, originals)
                if b.untyped_storage().data_ptr() == cache.untyped_storage().data_ptr()
            )  # fmt: skip
            item = cache.element_size()
            flat = copy.view(-1).view(cache.dtype)
            same = flat.as_strided(cache.shape, cache.stride(), cache.storage_offset())
            assert flat.numel() * item == buffer.numel()
            for _, page, spot in self._written():
                cache[page, spot] = same[page, spot]
        for buffer, copy in zip(buffers, kept):
            changed = int((buffer != copy).sum())
            assert changed == 0, f"{self}: {changed} bytes that no slot names were written"


def quantized(x, dtype):
    """x as PyTorch rounds it, but saturated."""
    if dtype == torch.int8:
        return x.nan_to_num(0.0, math.inf, -math.inf).round().clamp(-128, 127).to(dtype)
    if dtype in LARGEST:
        return x.clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype)
    return x.to(dtype)


def same_bits(a, b):
    as_integers = {1: torch.int8, 2: torch.int16}[a.element_size()]
    same = a.contiguous().view(as_integers) == b.contiguous().view(as_integers)
    return same | (a.float().isnan() & b.float().isnan())


def judge_half(what, out, truth):
    assert torch.equal(out.isnan(), truth.isnan()), f"{what}: NaN in other places"
    allowed = torch.finfo(out.dtype).eps * truth.abs().clamp_min(1e-3)
    error = ((out.double() - truth).abs() / allowed).nan_to_num()
    worst = error.max().item() if out.numel() else 0.0
    assert worst <= 1, f"{what}: off by {worst:.3g} units in the last place"


def judge_steps(what, stored, truth):
    limit = LARGEST.get(stored.dtype)
    if stored.dtype == torch.int8:
        error = (stored.double() - truth.clamp(-128, 127)).abs()
        allowed = torch.full_like(truth, 0.51)
    else:
        share, small = STEPS[stored.dtype]
        truth = truth.clamp(-limit, limit)
        error = (stored.double() - truth).abs()
        allowed = 0.51 * share * truth.abs().clamp_min(small)
    worst = (error / allowed).max().item()
    assert worst <= 1, f"{what}: off by {worst:.3g} of half a step"
