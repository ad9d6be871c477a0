"""Textbook attention, GEMM, norms and merging, step by step, in any precision.

In float64 they are the truth that the kernels are judged by; in the kernel's own dtype they give
the error that is excused (compare.py).
"""

import dataclasses
import math
import os

import torch


@dataclasses.dataclass
class Position:
    """The names of a variant's expressions, as tensors that broadcast to [b, h, row, kv]."""

    b: torch.Tensor
    h: torch.Tensor
    h_kv: torch.Tensor
    row: torch.Tensor
    q: torch.Tensor
    kv: torch.Tensor
    len_q: int
    len_kv: int


def positions(batch, heads, heads_kv, len_q, len_kv, device):
    def axis(size, dim):
        shape = [1, 1, 1, 1]
        shape[dim] = size
        return torch.arange(size, device=device).view(shape)

    h = axis(heads, 1)
    row = axis(len_q, 2)
    return Position(
        b=axis(batch, 0),
        h=h,
        h_kv=h // max(1, heads // heads_kv),
        row=row,
        q=row + len_kv - len_q,
        kv=axis(len_kv, 3),
        len_q=len_q,
        len_kv=len_kv,
    )


def visible(at, causal, window):
    """The mask of the built-in options: bottom-right aligned, both window sides inclusive."""
    keep = torch.ones_like(at.q + at.kv, dtype=torch.bool)
    if causal:
        keep = keep & (at.kv <= at.q)
    left, right = window
    if left >= 0:
        keep = keep & (at.kv >= at.q - left)
    if right >= 0:
        keep = keep & (at.kv <= at.q + right)
    return keep


def _product(a, b):
    """a @ b; by the host if KILN_TEST_PRODUCTS=host, as racecheck ends cuBLAS's in an error."""
    if os.environ.get("KILN_TEST_PRODUCTS") != "host":
        return a @ b
    return (a.cpu() @ b.cpu()).to(a.device)


def attention(
    q,
    k,
    v,
    *,
    precision,
    causal=False,
    window=(-1, -1),
    softcap=0.0,
    scale=None,
    sinks=None,
    alibi_slopes=None,
    layout="bshd",
    logits=None,
    mask=None,
    weights_dtype=None,
):
    """(out, lse) with every tensor rounded to `precision` after each step.

    `logits(logit, at)` and `mask(at)` are a variant's two hooks. lse is [batch, heads, len_q]. A
    weights_dtype, an 8-bit float, is what weights are rounded to, in units by which the row's
    largest is between two of its numbers.
    """
    if layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    q, k, v = q.to(precision), k.to(precision), v.to(precision)
    at = positions(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.device)
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = _product(q, k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = _transform(scores, at, softcap, alibi_slopes, logits).to(precision)
    keep = visible(at, causal, window)
    if mask is not None:
        keep = keep & mask(at)
    scores = scores.masked_fill(~keep, -math.inf)
    wide = torch.promote_types(precision, torch.float32)
    lse = torch.logsumexp(scores.to(wide), -1)
    weights = torch.exp(scores.to(wide) - lse[..., None])
    if sinks is not None:
        weights = weights / (1 + torch.exp(sinks.to(wide)[None, :, None] - lse))[..., None]
    weights = weights.masked_fill(~keep, 0.0)  # a row without visible keys gives 0, not NaN
    if weights_dtype is not None and weights.shape[-1] > 0:
        unit = weights.amax(-1, keepdim=True).clamp(min=1e-30) / 22.6
        weights = (weights / unit).to(weights_dtype).to(wide) * unit
    out = _product(weights.to(precision), v)
    return (out.transpose(1, 2) if layout == "bshd" else out), lse


def _transform(scores, at, softcap, alibi_slopes, logits):
    wide = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.to(wide)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        slopes = alibi_slopes.to(wide)
        slopes = slopes[None, :, None, None] if slopes.dim() == 1 else slopes[:, :, None, None]
        scores = scores - slopes * (at.q - at.kv).abs()
    if logits is not None:
        scores = logits(scores, at)
    return scores


ACTIVATIONS = {
    None: lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}
# Of gated activations: what becomes of the gate, which its partner is multiplied by.
GATED = {
    "swiglu": ACTIVATIONS["silu"],
    "geglu": ACTIVATIONS["gelu"],
    "geglu_tanh": ACTIVATIONS["gelu_tanh"],
}


def to_tf32(x):
    """float32 rounded to the 10 mantissa bits of tf32, ties away from zero."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def gemm(
    a,
    b,
    *,
    activation=None,
    gate="halves",
    bias=None,
    residual=None,
    scale_a=None,
    scale_b=None,
    alpha=1.0,
    epilogue=None,
):
    """float64 truth. `epilogue(acc, bias, residual)` replaces activation, bias and residual."""
    acc = _scaled(alpha * (a.double() @ b.double()), scale_a, scale_b)
    return _epilogue(acc, activation, gate, bias, residual, epilogue, torch.float64)


def gemm_baseline(
    a,
    b,
    *,
    out_dtype,
    activation=None,
    gate="halves",
    bias=None,
    residual=None,
    scale_a=None,
    scale_b=None,
    alpha=1.0,
    epilogue=None,
    accumulator="float32",
):
    """The same as a careful kernel would do it: exact products, sums in the accumulator's type."""
    if a.dtype == torch.float32:
        a, b = to_tf32(a), to_tf32(b)
    acc = _sum_in_half(a, b) if accumulator == "float16" else a.float() @ b.float()
    acc = _scaled(alpha * acc, scale_a, scale_b)
    return _epilogue(acc, activation, gate, bias, residual, epilogue, torch.float32).to(out_dtype)


def _scaled(acc, scale_a, scale_b):
    if scale_a is not None:
        rows = scale_a.dim() == 1 and scale_a.numel() > 1
        acc = acc * (scale_a[:, None] if rows else scale_a).to(acc.dtype)
    return acc if scale_b is None else acc * scale_b.to(acc.dtype)


def _sum_in_half(a, b):
    """16 terms at a time, the running sum rounded to half: one step of the tensor core."""
    acc = 0.0
    for k in range(0, a.shape[-1], 16):
        acc = (acc + a[..., k : k + 16].float() @ b[..., k : k + 16, :].float()).half().float()
    return acc


def _epilogue(acc, activation, gate, bias, residual, epilogue, dtype):
    bias = None if bias is None else bias.to(dtype)
    residual = None if residual is None else residual.to(dtype)
    if epilogue is not None:
        return epilogue(acc, bias, residual)
    acc = acc if bias is None else acc + bias
    if activation in GATED:
        pairs = acc.unflatten(-1, (-1, 2) if gate == "interleaved" else (2, -1))
        gates, partners = pairs.unbind(-1 if gate == "interleaved" else -2)
        acc = GATED[activation](gates) * partners
    else:
        acc = ACTIVATIONS[activation](acc)
    return acc if residual is None else acc + residual


def norm(
    op,
    x,
    weight=None,
    bias=None,
    *,
    eps=None,
    weight_offset=0.0,
    residual=None,
    activation=None,
):
    """float64 truth of rms_norm and layer_norm."""
    x = x.double() if residual is None else x.double() + residual.double()
    if op == "layer_norm":
        x = x - x.mean(-1, keepdim=True)
    default = 1e-6 if op == "rms_norm" else 1e-5
    # As float32, in which it is passed.
    eps = torch.tensor(default if eps is None else eps, dtype=torch.float32).double().item()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * (weight.double() + weight_offset)
    y = y if bias is None else y + bias.double()
    return ACTIVATIONS[activation](y)


def merge_states(outs, lses, sinks=None, base="e"):
    """The merged result and log-sum-exp, in float64; lses are [parts, tokens, heads]."""
    unit = 1.0 if base == "e" else math.log(2)
    logs = lses.double() * unit
    logs = torch.where(logs == math.inf, -math.inf, logs)
    empty = logs == -math.inf
    lse = torch.logsumexp(logs, 0)
    weights = torch.where(empty, 0.0, torch.exp(logs - torch.where(lse == -math.inf, 0.0, lse)))
    values = torch.where(weights[..., None] == 0, 0.0, outs.double())
    out = (weights[..., None] * values).sum(0)
    if sinks is not None:
        out = out * torch.sigmoid(lse - sinks.double())[..., None]
    return out, lse / unit


def attention_states(q, k, v):
    """Attention of [tokens, heads, head_dim] and its log-sum-exp, [tokens, heads]."""
    logits = torch.einsum("qhd,khd->qhk", q, k) / math.sqrt(q.shape[-1])
    lse = torch.logsumexp(logits, -1)
    weights = torch.exp(logits - torch.where(lse == -math.inf, 0.0, lse)[..., None])
    return torch.einsum("qhk,khd->qhd", weights, v), lse


def rotary(x, cos, sin, interleaved=False):
    """The rotary embedding of [tokens, heads, head_dim] with angles [tokens, angles]."""
    angles = cos.shape[-1]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned = x[..., : 2 * angles]
    if interleaved:
        a, b = turned[..., ::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = turned[..., :angles], turned[..., angles:]
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([turned, x[..., 2 * angles :]], -1)
