"""The suite overhead: host time of a hot call from Python, beside Triton's and PyTorch's own.

Tiny problems, asynchronous; under no_grad, where inference runs, and once with grad mode on, where
PyTorch is asked of each tensor whether it requires grad.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import kiln.operators  # noqa: F401  registers torch.ops.kiln
import torch
from kiln import jit
from timing import host_times, summary
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.functional import scaled_dot_product_attention

BASE = "Triton launch"
LIMIT = 0.03
SDPA = {"SDPA FA2": SDPBackend.FLASH_ATTENTION, "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION}


def measure(short=False):
    """{"host": {name: times}, "left_out": {name: reason}}"""
    q, k, v = torch.randn(3, 1, 64, 2, 64, device="cuda", dtype=torch.bfloat16)
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    expected = scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)
    difference = (jit.flash_attention(q, k, v, causal=True) - expected).abs().max().item()
    if not difference < LIMIT:
        raise RuntimeError(f"attention differs from PyTorch's by {difference:.3g} (limit {LIMIT})")
    calls = {**_kiln_calls(q, k, v), **_flex_calls(*heads), **_peer_calls(q, heads)}
    left_out = {}
    try:
        from triton_kernel import launcher

        calls[BASE] = contextlib.nullcontext, launcher(q, k, v, torch.empty_like(q))
    except ImportError as error:
        left_out["Triton"] = f"not installed: {error}"
    samples = host_times(calls, rounds=20 if short else 60)
    samples.update(host_times(_array_calls(), rounds=10 if short else 30, loops=1))
    return {"host": {name: summary(times) for name, times in samples.items()}, "left_out": left_out}


def _kiln_calls(q, k, v):
    out, lse = torch.empty_like(q), torch.empty(1, 2, 64, device="cuda")
    a, b = torch.randn(2, 64, 64, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(a)
    operator = torch.ops.kiln.flash_attention.default
    qh, kh, vh = (x.transpose(1, 2) for x in (q, k, v))
    calls = {
        "kiln attention, out=": lambda: jit.flash_attention(q, k, v, causal=True, out=out),
        "kiln attention": lambda: jit.flash_attention(q, k, v, causal=True),
        "kiln attention, out= and lse=": lambda: jit.flash_attention(
            q, k, v, causal=True, out=out, lse=lse
        ),
        "kiln gemm, out=": lambda: jit.gemm(a, b, out=product),
        "kiln gemm": lambda: jit.gemm(a, b),
        "kiln attention, operator": lambda: operator(q, k, v, causal=True),
        "kiln SDPA": lambda: jit.scaled_dot_product_attention(qh, kh, vh, is_causal=True),
    }
    placed = {name: (contextlib.nullcontext, call) for name, call in calls.items()}
    placed["kiln attention, out=, grad mode on"] = torch.enable_grad, calls["kiln attention, out="]
    return placed


def _flex_calls(q, k, v):
    """Callables of FlexAttention that read a number, a table and documents; and a BlockMask."""
    cap, slopes = 20.0, torch.rand(q.size(1), device="cuda")
    documents = torch.arange(q.size(2), device="cuda", dtype=torch.int32)[None] // 20

    def capped(score, b, h, q_idx, kv_idx):
        return cap * torch.tanh(score / cap)

    def tilted(score, b, h, q_idx, kv_idx):
        return score - slopes[h] * (q_idx - kv_idx)

    def causal(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    def in_document(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (documents[b, q_idx] == documents[b, kv_idx])

    blocks = create_block_mask(in_document, 1, None, q.size(2), k.size(2), device="cuda")
    calls = {
        "kiln flex_attention, causal": lambda: jit.flex_attention(q, k, v, mask_mod=causal),
        "kiln flex_attention, ALiBi": lambda: jit.flex_attention(q, k, v, tilted, mask_mod=causal),
        "kiln flex_attention, documents": lambda: jit.flex_attention(q, k, v, mask_mod=in_document),
        "kiln flex_attention, cap, BlockMask": lambda: jit.flex_attention(q, k, v, capped, blocks),
    }
    return {name: (contextlib.nullcontext, call) for name, call in calls.items()}


def _array_calls():
    """64 MB of NumPy arrays to the GPU, 21 MB back; each call waits for its result."""
    arrays = [x.cpu().numpy() for x in torch.randn(3, 5, 16, 2048, 64, device="cuda").half()]

    def through_torch():
        tensors = [torch.from_numpy(array).cuda() for array in arrays]
        return scaled_dot_product_attention(*tensors).cpu().numpy()

    ours = jit.scaled_dot_product_attention(*arrays)
    difference = abs(ours.astype("float32") - through_torch().astype("float32")).max()
    if not difference < LIMIT:
        raise RuntimeError(f"NumPy's attention differs from PyTorch's by {difference:.3g}")
    calls = {
        "kiln SDPA of NumPy arrays": lambda: jit.scaled_dot_product_attention(*arrays),
        "NumPy to CUDA, SDPA, back": through_torch,
    }
    return {name: (contextlib.nullcontext, call) for name, call in calls.items()}


def _peer_calls(q, heads):
    a, b = torch.randn(2, 64, 64, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(a)
    calls = {
        "torch.matmul, out=": lambda: torch.matmul(a, b, out=product),
        "torch.matmul": lambda: torch.matmul(a, b),
        "torch.add": lambda: torch.add(a, b),
        "torch.empty_like": lambda: torch.empty_like(q),
    }
    placed: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        name: (contextlib.nullcontext, call) for name, call in calls.items()
    }
    for name, backend in SDPA.items():
        context = functools.partial(sdpa_kernel, [backend])
        placed[name] = context, lambda: scaled_dot_product_attention(*heads, is_causal=True)
    return placed
