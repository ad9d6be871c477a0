"""One call of kiln.compat.flash_attn as flash-attn's public tests make it: inputs, call, judgement.

Each sequence is judged by itself, by the textbook in float64, with the gates of compare.py.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import torch
from compare import check_lse, check_rows, tanh_error
from grid import sized
from kiln.compat import flash_attn
from reference import attention
from storage import DEVICE, DTYPES, randn

HEADS = 6
HEADS_KV = {"mha": HEADS, "gqa": 2, "mqa": 1}


def integers(values):
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def starts(lengths):
    return integers([0, *itertools.accumulate(lengths)])


def rotated(x, cos, sin, position, interleaved, still=False):
    """x, [len, heads, dim], from position on; still: all of it at position."""
    angles = cos.shape[1]
    at = position + (torch.zeros(len(x), dtype=torch.long) if still else torch.arange(len(x)))
    cos, sin = (table[at.to(table.device)].double()[:, None] for table in (cos, sin))
    turned = x.double()
    first, second = (slice(0, 2 * angles, 2), slice(1, 2 * angles, 2)) if interleaved else (
        slice(0, angles), slice(angles, 2 * angles))  # fmt: skip
    a, b = turned[..., first].clone(), turned[..., second].clone()
    turned[..., first], turned[..., second] = a * cos - b * sin, b * cos + a * sin
    return turned.to(x.dtype)


def paged(x, page, seed):
    """The rows of x, [batch, len, ..], in pages of a shuffled pool, and their table."""
    batch, length = x.shape[:2]
    width = -(-length // page)
    order = torch.randperm(batch * width, generator=torch.Generator().manual_seed(seed))
    pool = torch.full((batch * width, page, *x.shape[2:]), math.nan, dtype=x.dtype, device=DEVICE)
    table = order.view(batch, width).to(DEVICE)
    for b in range(batch):
        rows = pool[table[b]].flatten(0, 1)
        rows[:length] = x[b]
        pool[table[b]] = rows.view(width, page, *x.shape[2:])
    return pool, table.int()


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of flash-attn's parameters, under its names of them."""

    dtype: str = "bf16"
    mha_type: str = "gqa"
    alibi: bool = False
    local: bool = False
    causal: bool = False
    d: int = 64
    lengths: tuple = (113, 203)

    @property
    def name(self):
        changed = [f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self)]
        return "-".join(changed).replace(" ", "")

    @property
    def batch(self):
        return sized(small=2, full=4)

    @property
    def window(self):
        return (self.lengths[1] // 3, self.lengths[1] // 5) if self.local else (-1, -1)

    def tensor(self, *shape, seed):
        return randn(list(shape), DTYPES[self.dtype], seed)

    def slopes(self):
        return randn([self.batch, HEADS], torch.float32, 9).abs() * 0.3 if self.alibi else None

    def options(self):
        return {"causal": self.causal, "window_size": self.window, "alibi_slopes": self.slopes()}

    def judge(self, out, lse, q, k, v, b, **more):
        """Of a sequence's tensors [len, heads, d]; lse is [heads, len]."""
        alibi = self.slopes()
        options = dict(
            causal=self.causal, window=self.window,
            alibi_slopes=None if alibi is None else alibi[b : b + 1], **more,
        )  # fmt: skip
        tensors = [x[None] for x in (q, k, v)]
        expected, expected_lse = attention(*tensors, precision=torch.float64, **options)
        baseline, _ = attention(*tensors, precision=q.dtype, **options)
        what = f"{self.name}, sequence {b}"
        check_rows(out, expected[0], baseline[0], what=what)
        off = tanh_error(options.get("softcap", 0.0))
        check_lse(lse, expected_lse[0], what=what, excused=off)

    def explain(self):
        """A key of its own, as calls of several kernels have none; CaseGroup asks for it."""
        return {"key": self.name}

    def run(self):
        self.check()


@dataclasses.dataclass(frozen=True)
class DenseCase(Case):
    softcap: float = 0.0
    packed: str = ""  # "kv" or "qkv"

    def check(self):
        heads_kv = HEADS_KV[self.mha_type]
        len_q, len_k = self.lengths
        q = self.tensor(self.batch, len_q, HEADS, self.d, seed=1) * (self.softcap or 1)
        kv = self.tensor(self.batch, len_k, 2, heads_kv, self.d, seed=2)
        k, v = kv.unbind(2)
        options = {**self.options(), "softcap": self.softcap, "return_attn_probs": True}
        if self.packed == "qkv":
            qkv = torch.stack((q, k, v), 2)
            found = flash_attn.flash_attn_qkvpacked_func(qkv, 0.0, **options)
        elif self.packed == "kv":
            found = flash_attn.flash_attn_kvpacked_func(q, kv, 0.0, **options)
        else:
            found = flash_attn.flash_attn_func(q, k, v, 0.0, **options)
        out, lse, probabilities = found
        assert probabilities is None
        for b in range(self.batch):
            self.judge(out[b], lse[b], q[b], k[b], v[b], b, softcap=self.softcap)


@dataclasses.dataclass(frozen=True)
class VarlenCase(Case):
    softcap: float = 0.0
    packed: str = ""  # "kv"
    paged_kv_block_size: int | None = None
    unused: bool = False  # queries and keys behind seqused_q and seqused_k

    def inputs(self):
        heads_kv = HEADS_KV[self.mha_type]
        lens_q, lens_k = ([max(0, n - 17 * b) for b in range(self.batch)] for n in self.lengths)
        q = self.tensor(sum(lens_q), HEADS, self.d, seed=1) * (self.softcap or 1)
        return lens_q, lens_k, q, self.tensor(sum(lens_k), 2, heads_kv, self.d, seed=2)

    def call(self, q, kv, lens_q, lens_k, **options):
        k, v = kv.unbind(1)
        bounds = (starts(lens_q), starts(lens_k), max(lens_q), max(lens_k))
        if self.packed == "kv":
            return flash_attn.flash_attn_varlen_kvpacked_func(q, kv, *bounds, 0.0, **options)
        if self.paged_kv_block_size:
            rows = kv.new_zeros(self.batch, max(lens_k), *kv.shape[1:])
            for b, own in enumerate(kv.split(lens_k)):
                rows[b, : lens_k[b]] = own
            pool, options["block_table"] = paged(rows, self.paged_kv_block_size, seed=3)
            k, v = pool.unbind(2)
        return flash_attn.flash_attn_varlen_func(q, k, v, *bounds, 0.0, **options)

    def check(self):
        lens_q, lens_k, q, kv = self.inputs()
        options = {**self.options(), "softcap": self.softcap, "return_attn_probs": True}
        used_q, used_k = lens_q, lens_k
        if self.unused:
            used_q, used_k = ([n - n // 4 for n in lengths] for lengths in (lens_q, lens_k))
            options.update(seqused_q=integers(used_q), seqused_k=integers(used_k))
        out, lse, _ = self.call(q, kv, lens_q, lens_k, **options)
        first_q = first_k = 0
        for b in range(self.batch):
            queries = slice(first_q, first_q + used_q[b])
            k, v = kv[first_k : first_k + used_k[b]].unbind(1)
            self.judge(out[queries], lse[:, queries], q[queries], k, v, b, softcap=self.softcap)
            first_q, first_k = first_q + lens_q[b], first_k + lens_k[b]


@dataclasses.dataclass(frozen=True)
class CacheCase(Case):
    num_splits: int = 0
    new_kv: bool = False
    seqlen_new_eq_seqlen_q: bool = True
    rotary_interleaved: bool = False
    rotary_fraction: float = 0.0
    paged_kv_block_size: int | None = None
    has_leftpad: bool = False
    has_batch_idx: bool = False

    @property
    def rotary_dim(self):
        return int(self.rotary_fraction * self.d) // 16 * 16

    @property
    def len_new(self):
        return self.lengths[0] if self.seqlen_new_eq_seqlen_q else max(1, self.lengths[0] // 2)

    def tables(self):
        if not self.rotary_dim:
            return None, None
        angles = torch.rand(self.lengths[1] + self.lengths[0], self.rotary_dim // 2) * 6.28
        return (x.to(DTYPES[self.dtype]).to(DEVICE) for x in (angles.cos(), angles.sin()))

    def check(self):
        torch.manual_seed(4)
        heads_kv = HEADS_KV[self.mha_type]
        len_q, len_k = self.lengths
        entries = self.batch + (2 if self.has_batch_idx else 0)
        q = self.tensor(self.batch, len_q, HEADS, self.d, seed=1)
        cache = self.tensor(entries, len_k, 2, heads_kv, self.d, seed=2)
        new = self.tensor(self.batch, self.len_new, 2, heads_kv, self.d, seed=3)
        k, v = new.unbind(2) if self.new_kv else (None, None)
        room = len_k - (self.len_new if self.new_kv else 0)
        counts = [max(0 if self.new_kv else 1, room - 29 * b) for b in range(self.batch)]
        pads = [n // 3 if self.has_leftpad else 0 for n in counts]
        index = list(range(entries))[::-1][: self.batch] if self.has_batch_idx else None
        cos, sin = self.tables()
        pool, table = cache.clone(), None
        if self.paged_kv_block_size:
            pool, table = paged(cache, self.paged_kv_block_size, seed=3)
        out, lse = flash_attn.flash_attn_with_kvcache(
            q, pool[:, :, 0], pool[:, :, 1], k, v, cos, sin, integers(counts),
            None if index is None else integers(index),
            integers(pads) if self.has_leftpad else None, table,
            rotary_interleaved=self.rotary_interleaved, num_splits=self.num_splits,
            return_softmax_lse=True, **self.options(),
        )  # fmt: skip
        after = pool if table is None else pool[table.long()].flatten(1, 2)
        for b in range(self.batch):
            entry = b if index is None else index[b]
            keys = self.appended(cache[entry], new[b], after[entry], counts[b], cos, sin)
            still = not (self.causal or self.local)
            queries = q[b]
            if self.rotary_dim:
                queries = rotated(q[b], cos, sin, counts[b], self.rotary_interleaved, still)
            k_b, v_b = keys[pads[b] :].unbind(1)
            self.judge(out[b], lse[b], queries, k_b, v_b, b)

    def appended(self, before, new, after, count, cos, sin):
        """The keys and values that a sequence attends to, which the cache must have now."""
        if not self.new_kv:
            assert torch.equal(after[: len(before)], before)
            return before[:count]
        new = new.clone()
        if self.rotary_dim:
            new[:, 0] = rotated(new[:, 0], cos, sin, count, self.rotary_interleaved)
        end = count + len(new)
        torch.testing.assert_close(after[count:end], new, rtol=2**-7, atol=2**-7)
        assert torch.equal(after[:count], before[:count])
        assert torch.equal(after[end : len(before)], before[end:])
        return after[:end]
