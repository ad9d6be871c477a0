"""Every call that returns a log-sum-exp, as a table: each for the same queries, keys and values.

Inputs are numbers of e4m3, and scales are powers of two, so that calls with 8-bit tensors and those
with bfloat16 ones have one truth.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from compare import BYTE_WEIGHTS_GATE, GATES, check_lse, check_rows
from flash_attn_case import paged
from kiln import jit, operators  # noqa: F401  # whose import registers torch.ops.kiln
from kiln.compat import flash_attn
from reference import attention
from storage import DEVICE, randn
from varlen_case import integers, starts

BATCH, HEADS, HEADS_KV, DIM = 2, 4, 2, 64
PAGE = 4
E4M3 = torch.float8_e4m3fn
Q_SCALE, K_SCALE, V_SCALE = 0.5, 0.25, 0.125


def inputs(len_q, len_k):
    """q [batch, len_q, heads, dim], k and v [batch, len_k, heads_kv, dim], bfloat16."""
    shapes = [(len_q, HEADS), (len_k, HEADS_KV), (len_k, HEADS_KV)]
    drawn = (randn([BATCH, *shape, DIM], torch.float32, 31 + i) for i, shape in enumerate(shapes))
    return [x.to(E4M3).to(torch.bfloat16) for x in drawn]


def some_sinks():
    """float32 [heads], from far below the log-sum-exps to above them."""
    return torch.linspace(-2.0, 5.0, HEADS, device=DEVICE)


def with_unused_rows(x):
    """[batch, len + a page, ..]: NaN behind each sequence's last key."""
    return torch.cat([x, x.new_full([BATCH, PAGE, *x.shape[2:]], math.nan)], 1)


def paged_caches(k, v):
    """The caches, NaN where no key is, and their block table."""
    (k_pages, table), (v_pages, _) = (paged(with_unused_rows(x), PAGE, seed=5) for x in (k, v))
    return k_pages, v_pages, table


def varlen_lengths(q, k):
    len_q, len_k = q.shape[1], k.shape[1]
    return dict(cu_seqlens_q=starts([len_q] * BATCH), max_seqlen_q=len_q, max_seqlen_k=len_k)


def used_keys(k):
    return integers([k.shape[1]] * BATCH)


def dense(attend, q, k, v, **options):
    return attend(q, k, v, **options)


def head_major(attend, q, k, v, **options):
    swapped = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    out, lse = attend(*swapped, layout="bhsd", **options)
    return out.transpose(1, 2), lse


def packed(attend, q, k, v, **options):
    options.update(varlen_lengths(q, k), cu_seqlens_k=starts([k.shape[1]] * BATCH))
    return attend(*(x.flatten(0, 1) for x in (q, k, v)), **options)


def paged_varlen(attend, q, k, v, **options):
    *caches, table = paged_caches(k, v)
    options.update(varlen_lengths(q, k), seqused_k=used_keys(k), block_table=table)
    return attend(q.flatten(0, 1), *caches, **options)


def cache(attend, q, k, v, **options):
    caches = (with_unused_rows(x) for x in (k, v))
    return attend(q, *caches, cache_seqlens=used_keys(k), **options)


def paged_cache(attend, q, k, v, **options):
    *caches, table = paged_caches(k, v)
    return attend(q, *caches, cache_seqlens=used_keys(k), block_table=table, **options)


def stored(x, scale):
    """x in e4m3, as multiples of scale."""
    return (x / scale).to(E4M3)


def quantized_cache(attend, q, k, v, **options):
    k_pages, v_pages, table = paged_caches(k, v)
    scales = (torch.tensor(scale, device=DEVICE) for scale in (K_SCALE, V_SCALE))
    options.update(zip(("k_scale", "v_scale"), scales), block_table=table)
    caches = stored(k_pages, K_SCALE), stored(v_pages, V_SCALE)
    return attend(q, *caches, cache_seqlens=used_keys(k), **options)


def byte_queries(attend, q, k, v, **options):
    options["q_scale"] = torch.tensor(Q_SCALE, device=DEVICE)
    out, lse = quantized_cache(attend, stored(q, Q_SCALE), k, v, **options)
    assert out.dtype == torch.bfloat16
    return out, lse


def flash_attn_call(name):
    """A function of flash-attn's under the parameters of kiln.jit's."""

    def attend(*tensors, sinks=None, **options):
        return getattr(flash_attn, name)(*tensors, s_aux=sinks, **options)

    return attend


def operator(name):
    """The operator that returns (out, lse)."""

    def attend(*tensors, return_lse, **options):
        assert return_lse
        return getattr(torch.ops.kiln, name)(*tensors, **options)

    return attend


@dataclasses.dataclass(frozen=True)
class State:
    """What a call returned, as merge_states takes it: [tokens, heads, dim] and [heads, tokens]."""

    out: torch.Tensor
    lse: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    way: Callable  # of passing q, k and v to attend
    attend: Callable
    packed: bool = False  # out is [tokens, heads, dim] and lse [heads, tokens]
    counts_sinks: bool = False  # in the log-sum-exp
    rounds_weights: bool = False  # to e4m3, on some architectures

    def __str__(self):
        return self.name

    def __call__(self, q, k, v, **options):
        """The State of the call, whose results must have the layouts that its page tells."""
        out, lse = self.way(self.attend, q, k, v, return_lse=True, **options)
        tokens = BATCH * q.shape[1]
        shape = [HEADS, tokens] if self.packed else [BATCH, HEADS, q.shape[1]]
        assert lse.dtype == torch.float32 and list(lse.shape) == shape, f"{self}: {lse.shape}"
        if self.packed:
            assert list(out.shape) == [tokens, HEADS, DIM], f"{self}: {out.shape}"
            return State(out, lse)
        assert out.shape == q.shape, f"{self}: {out.shape}"
        return State(out.flatten(0, 1), lse.transpose(0, 1).flatten(1))

    def judge(self, what, state, q, k, v, sinks=None, **options):
        """A state, of one call or merged, against the textbook."""
        weights = E4M3 if self.rounds_weights and k.shape[1] else None
        expected, lse = attention(q, k, v, precision=torch.float64, sinks=sinks, **options)
        baseline, _ = attention(
            q, k, v, precision=q.dtype, weights_dtype=weights, sinks=sinks, **options
        )
        if self.counts_sinks and sinks is not None:
            lse = torch.logaddexp(lse, sinks.double()[:, None])
        gate = BYTE_WEIGHTS_GATE if self.rounds_weights else GATES[q.dtype]
        rows = (x.flatten(0, 1) for x in (expected, baseline))
        check_rows(state.out, *rows, what=f"{self}, {what}", gate=gate)
        check_lse(state.lse, lse.transpose(0, 1).flatten(1), what=f"{self}, {what}")


ENTRIES = (
    Entry("dense", dense, jit.flash_attention),
    Entry("head-major", head_major, jit.flash_attention),
    Entry("packed", packed, jit.flash_attention_varlen, packed=True),
    Entry("paged-varlen", paged_varlen, jit.flash_attention_varlen, packed=True),
    Entry("cache", cache, jit.flash_attention_with_kvcache),
    Entry("paged-cache", paged_cache, jit.flash_attention_with_kvcache),
    Entry("quantized-cache", quantized_cache, jit.flash_attention_with_kvcache),
    Entry("byte-queries", byte_queries, jit.flash_attention_with_kvcache, rounds_weights=True),
    Entry("operator-dense", dense, operator("flash_attention_lse")),
    Entry("operator-packed", packed, operator("flash_attention_varlen_lse"), packed=True),
    Entry("operator-cache", cache, operator("flash_attention_with_kvcache_lse")),
    Entry("flash-attn-dense", dense, flash_attn_call("flash_attn_func"), counts_sinks=True),
    Entry("flash-attn-varlen", packed, flash_attn_call("flash_attn_varlen_func"), packed=True,
          counts_sinks=True),
    Entry("flash-attn-cache", paged_cache, flash_attn_call("flash_attn_with_kvcache"),
          counts_sinks=True),
)  # fmt: skip
