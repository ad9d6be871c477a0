"""GEMM of 8-bit floats with scales of blocks: its inputs, what they stand for, and its peers.

A factor belongs to 1 x 128 of a, along K, or to 128 x 128 of b.
"""

from __future__ import annotations

import torch
from measure import REASON_LENGTH, Contender, Unavailable

BLOCK = 128
LARGEST = 448.0  # of e4m3


def quantized(x, rows):
    """x as e4m3 and factors, [rows of x / `rows`, columns of x / 128]."""
    down, across = -(-x.shape[0] // rows), -(-x.shape[1] // BLOCK)
    padded = x.new_zeros(down * rows, across * BLOCK, dtype=torch.float32)
    padded[: x.shape[0], : x.shape[1]] = x
    tiles = padded.view(down, rows, across, BLOCK)
    scale = tiles.abs().amax((1, 3)).clamp_min(1e-4) / LARGEST
    values = (tiles / scale[:, None, :, None]).view_as(padded)[: x.shape[0], : x.shape[1]]
    return values.to(torch.float8_e4m3fn).contiguous(), scale


def inputs(a, w):
    """a [M, K] and w [N, K]. The factors of a are contiguous along M, at a pitch of 16 bytes: the
    layout in which serving engines make them."""
    a, scale = quantized(a, 1)
    w, scale_b = quantized(w, BLOCK)
    return {"a": a, "b": w, "scale_a": by_columns(scale), "scale_b": scale_b}


def by_columns(scale):
    """The same factors, [..., M, K / 128], contiguous along M at a pitch of 16 bytes."""
    rows = scale.shape[-2]
    pitched = scale.new_zeros(*scale.shape[:-2], scale.shape[-1], -(-rows // 4) * 4)
    pitched[..., :rows] = scale.mT
    return pitched[..., :rows].mT


def dequantized(x, scale, rows):
    wide = scale.repeat_interleave(rows, 0)[: x.shape[0]].repeat_interleave(BLOCK, 1)
    return x.float() * wide[:, : x.shape[1]]


def operands(given):
    """What a and w stand for, in float32."""
    return dequantized(given["a"], given["scale_a"], 1), dequantized(
        given["b"], given["scale_b"], BLOCK
    )


def keywords(given):
    """Of jit.gemm, for b = w.mT."""
    return {"scale_a": given["scale_a"], "scale_b": given["scale_b"].mT}


def deep_gemm(sets, outs):
    try:
        import deep_gemm as peer
    except ImportError as error:
        raise Unavailable(f"DeepGEMM is not installed: {error}") from error
    multiply = getattr(peer, "fp8_gemm_nt", None) or getattr(peer, "gemm_fp8_fp8_bf16_nt", None)
    if multiply is None:
        raise Unavailable("this DeepGEMM has neither fp8_gemm_nt nor gemm_fp8_fp8_bf16_nt")

    def call(index):
        x = sets[index]
        multiply((x["a"], x["scale_a"]), (x["b"], x["scale_b"]), outs[index])
        return outs[index]

    return tried(call)


def cublas(sets, outs):
    """cuBLASLt through torch._scaled_mm, which wants the factors of b at a pitch of 16 bytes."""

    def pitched(scale):
        wide = scale.new_zeros(scale.shape[0], -(-scale.shape[1] // 4) * 4)
        wide[:, : scale.shape[1]] = scale
        return wide[:, : scale.shape[1]].t()

    scales = [(x["scale_a"].t().contiguous().t(), pitched(x["scale_b"])) for x in sets]

    def call(index):
        x, (scale_a, scale_b) = sets[index], scales[index]
        return torch._scaled_mm(
            x["a"], x["b"].mT, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16,
            out=outs[index],
        )  # fmt: skip

    return tried(call)


def tried(call, view=lambda result: result):
    """A Contender that was called once: a peer that refuses its operands says so then."""
    try:
        call(0)
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Unavailable(f"refuses: {text}"[:REASON_LENGTH]) from error
    return Contender(call, view)
