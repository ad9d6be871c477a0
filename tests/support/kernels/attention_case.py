"""One attention call: its inputs, the call itself and the judgement."""

from __future__ import annotations

import dataclasses
import math

import kiln
import torch
from compare import (
    BYTE_WEIGHTS_GATE,
    GATES,
    check_lse,
    check_quantized_rows,
    check_rows,
    tanh_error,
)
from kiln import jit
from named_case import NamedCase
from reference import attention
from storage import DEVICE, DTYPES, Placed, filled, place, randn

# Options without a window, for AttentionCase.
OPTIONS = {
    "softcap": {"softcap": 5.0},
    "softcap-large": {"softcap": 50.0, "magnitude": 20.0},
    "softcap-largest": {"softcap": 1000.0},
    "softcap-tiny": {"softcap": 1e-6},
    "alibi": {"alibi": "h"},
    "alibi-batch": {"alibi": "bh"},
    "sinks-f32": {"sinks": "f32"},
    "sinks-bf16": {"sinks": "bf16"},
    "sinks-f16": {"sinks": "f16"},
    "sinks-never": {"sinks": "-inf"},
    "sinks-all": {"sinks": "+inf"},
    "scale": {"scale": 0.3},
    "scale-negative": {"scale": -0.2},
    "scale-zero": {"scale": 0.0},
    "scale-negative-softcap": {"scale": -0.2, "softcap": 3.0, "alibi": "h"},
    "softcap-scale": {"softcap": 3.0, "scale": 2.0**10, "magnitude": 2.0**-12},
}


@dataclasses.dataclass(frozen=True)
class AttentionCase(NamedCase):
    dtype: str = "bf16"
    head_dim: int = 64
    head_dim_v: int = 0  # 0 = head_dim
    batch: int = 1
    len_q: int = 129
    len_kv: int = 129
    heads: int = 2
    heads_kv: int = 1
    causal: bool = False
    window: tuple = (-1, -1)
    softcap: float = 0.0
    scale: float | None = None
    alibi: str = ""  # "", "h" or "bh"
    sinks: str = ""  # "", a dtype, "+inf" or "-inf"
    layout: str = "bshd"
    storage: str = "plain"  # of q, k, v
    v_storage: str = ""  # "" = storage
    out_storage: str = "guarded"
    peak: str = ""  # "" = random data, else see PEAKS
    magnitude: float = 1.0  # of q

    def shaped(self, length, heads, dim):
        middle = [length, heads] if self.layout == "bshd" else [heads, length]
        return [self.batch, *middle, dim]

    def inputs(self, seed=0):
        dtype = DTYPES[self.dtype]
        dim_v = self.head_dim_v or self.head_dim
        if self.peak:
            q, k, v = peaked(self, dtype)
        else:
            q = randn(self.shaped(self.len_q, self.heads, self.head_dim), dtype, seed + 1)
            k = randn(self.shaped(self.len_kv, self.heads_kv, self.head_dim), dtype, seed + 2)
            v = randn(self.shaped(self.len_kv, self.heads_kv, dim_v), dtype, seed + 3)
        storages = self.storage, self.storage, self.v_storage or self.storage
        return [filled(*pair) for pair in zip(storages, (q * self.magnitude, k, v))]

    def options(self):
        """The keyword arguments, beside layout, of both the library and the reference."""
        options = dict(
            causal=self.causal, window=self.window, softcap=self.softcap, scale=self.scale
        )
        if self.alibi:
            shape = [self.heads] if self.alibi == "h" else [self.batch, self.heads]
            options["alibi_slopes"] = randn(shape, torch.float32, 11).abs() * 0.1
        if self.sinks in DTYPES:
            options["sinks"] = randn([self.heads], DTYPES[self.sinks], 12)
        elif self.sinks:
            options["sinks"] = torch.full([self.heads], float(self.sinks), device=DEVICE)
        return options

    def outputs(self):
        """NaN-poisoned out and lse."""
        dim_v = self.head_dim_v or self.head_dim
        shape = self.shaped(self.len_q, self.heads, dim_v)
        out = place(self.out_storage, shape, DTYPES[self.dtype])
        lse = torch.full([self.batch, self.heads, self.len_q], math.nan, device=DEVICE)
        return out, lse

    def run(self):
        """Only the call, for compiling ahead of the tests."""
        q, k, v = self.inputs()
        out, lse = self.outputs()
        jit.flash_attention(q, k, v, out=out.view, lse=lse, layout=self.layout, **self.options())

    def explain(self):
        """What the call would run: kiln.explain's answer."""
        q, k, v = self.inputs()
        out, lse = self.outputs()
        return kiln.explain(
            "flash_attention", q, k, v, out=out.view, lse=lse, layout=self.layout, **self.options()
        )

    def check(self, seed=0):
        q, k, v = self.inputs(seed)
        out, lse = self.outputs()
        options = self.options()
        jit.flash_attention(q, k, v, out=out.view, lse=lse, layout=self.layout, **options)
        judge(str(self), q, k, v, out, lse, layout=self.layout, **options)
        return out.view, lse


def judge(what, q, k, v, out, lse, logits_off=None, out_scale=0.0, weights_dtype=None, **options):
    """`out` (a tensor or Placed) and `lse` against the textbook in float64 and in q's dtype. With
    an out_scale, out is e4m3 and was divided by it. With a weights_dtype, the textbook may round
    weights to it.

    logits_off [batch, heads, len_q], for layout bshd: by how much each query's logits may be off,
    where the call computes q itself and no one sees how it was rounded. The LSE is then off by no
    more, and out, an average of the values by weights of a sum of 1, by twice that times the
    largest value."""
    expected, expected_lse = attention(q, k, v, precision=torch.float64, **options)
    baseline, _ = attention(q, k, v, precision=q.dtype, weights_dtype=weights_dtype, **options)
    gate = GATES[q.dtype] if weights_dtype is None else BYTE_WEIGHTS_GATE
    placed = isinstance(out, Placed)
    found = out.view if placed else out
    rows_off = 0.0
    # Tensor cores cut sums of products of bytes to 13 bits, the emulated device at the worst place.
    lse_off = 0.0 if weights_dtype is None else 3e-3
    lse_off += tanh_error(options.get("softcap", 0.0))
    if logits_off is not None:
        lse_off = lse_off + logits_off
        rows_off = 2 * v.double().abs().max() * logits_off.transpose(1, 2)
    if out_scale:
        check_quantized_rows(found, expected, baseline, out_scale, gate, what=what)
    else:
        check_rows(found, expected, baseline, what=what, gate=gate, excused=rows_off)
    check_lse(lse, expected_lse, what=what, excused=lse_off)
    if placed:
        out.check_untouched(what)


def extreme_inputs(dtype, extreme, **shape):
    """q, k and v whose logits, for scale=1, lie near `extreme`, and of every third key a bit above.
    All are exact: a power of two times a small integer."""
    case = AttentionCase(**shape)
    q, k, v = (torch.zeros_like(x, dtype=torch.float32) for x in case.inputs())
    q[..., 0] = 128.0
    k[..., 0] = float(round(extreme / 128))
    k[:, ::3, :, 0] += 1 if dtype == torch.float16 else 2
    return q.to(dtype), k.to(dtype), randn(v.shape, dtype, 3)


# Which key dominates row i. `limit` is the row's diagonal: i + len_kv - len_q.
PEAKS = {
    "sweep": lambda row, limit, case: (row * 7 + 3) % case.len_kv,
    "diagonal": lambda row, limit, case: limit,
    "beyond": lambda row, limit, case: limit + 1,
    "left_edge": lambda row, limit, case: limit - case.window[0],
    "beyond_left": lambda row, limit, case: limit - case.window[0] - 1,
    "first": lambda row, limit, case: torch.zeros_like(row),
    "last": lambda row, limit, case: torch.full_like(row, case.len_kv - 1),
    "edges": lambda row, limit, case: edges(case),
}


def edges(case):
    """The first and the last key of every 16, over the rows of all heads and batch entries."""
    number = torch.arange(case.batch * case.heads * case.len_q, device=DEVICE)
    number = number.view(case.batch, case.heads, case.len_q)
    return (number // 2 * 16 + number % 2 * 15) % case.len_kv


def peaked(case, dtype):
    """Keys are random signs, a query is the sum of nothing but its peak's key, V spells the index.

    Written for scale=1: the peak's logit is head_dim, the others stay near 4 sqrt(head_dim).
    """
    generator = torch.Generator(device=DEVICE).manual_seed(5)
    signs = torch.randint(0, 2, [case.len_kv, case.head_dim], device=DEVICE, generator=generator)
    keys = (signs * 2 - 1).float()
    row = torch.arange(case.len_q, device=DEVICE)
    limit = row + case.len_kv - case.len_q
    peak = PEAKS[case.peak](row, limit, case).clamp(0, case.len_kv - 1)
    peak = peak.expand(case.batch, case.heads, case.len_q)
    dim_v = case.head_dim_v or case.head_dim
    place_value = torch.arange(dim_v, device=DEVICE) % 16
    bits = (torch.arange(case.len_kv, device=DEVICE)[:, None] >> place_value) & 1
    values = (bits * 2 - 1).float()

    def spread(rows, heads):
        """[length, dim] for every batch and head."""
        rows = rows.to(dtype)[:, None, :].expand(-1, heads, -1)
        rows = rows if case.layout == "bshd" else rows.transpose(0, 1)
        return rows[None].expand(case.batch, -1, -1, -1)

    queries = keys[peak].to(dtype)
    return (
        queries.transpose(1, 2) if case.layout == "bshd" else queries,
        spread(keys, case.heads_kv),
        spread(values, case.heads_kv),
    )
