"""The truth that results are checked against: float32 on the device, in chunks, and the error.

Kiln and every peer must come near it before any of them is timed.
"""

from __future__ import annotations

import contextlib

import torch
from cells import key_range

# Of the error's norm over the truth's. Rounding to bf16 costs 0.0011, the softmax weights' another
# as much; tf32 operands 0.0007. A key tile of 128 that is left out of 16k costs 0.09.
LIMITS = {
    "bf16": 0.01, "fp16": 0.002, "tf32": 0.003, "fp32": 1e-5, "f8": 0.01, "f8 fast": 0.01,
    # These have 8-bit floats between two products, too.
    "f8 blocks": 0.01, "f8 layer": 0.03, "e4m3": 0.03,
}  # fmt: skip
ROW_FACTOR = 5  # one row may be worse than the whole by this
SCORES = 1 << 28  # floats of a chunk
COLUMNS = 16384  # of a chunk of GEMM


class Wrong(Exception):
    """A result that is not the truth; the text says how far off it is."""


@contextlib.contextmanager
def full_precision():
    """float32 products without tf32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def attention(cell, q, k, v):
    """[batch, length, heads, dim] in float32."""
    ratio = cell.heads // cell.heads_kv
    shape = (*q.shape[:-1], cell.value_dim)
    out = torch.empty(shape, dtype=torch.float32, device=q.device)
    step = max(1, min(cell.len_q, SCORES // (cell.heads * cell.len_kv)))
    with full_precision():
        for b in range(cell.batch):
            keys, values = (x[b].transpose(0, 1).float() for x in (k, v))
            for top in range(0, cell.len_q, step):
                bottom = min(top + step, cell.len_q)
                low, high = _keys_of(cell, top, bottom)
                rows = (q[b, top:bottom].float() * cell.dim**-0.5).transpose(0, 1)
                rows = rows.reshape(cell.heads_kv, ratio * (bottom - top), cell.dim)
                scores = rows @ keys[:, low:high].mT
                _mask(cell, scores.view(cell.heads, bottom - top, high - low), top, low)
                part = torch.softmax(scores, -1) @ values[:, low:high]
                part = part.view(cell.heads, bottom - top, cell.value_dim)
                out[b, top:bottom] = part.transpose(0, 1)
    return out


def _keys_of(cell, top, bottom):
    """The range that holds all keys of rows top to bottom."""
    first, _ = key_range(top, cell.len_q, cell.len_kv, cell.causal, cell.left)
    _, last = key_range(bottom - 1, cell.len_q, cell.len_kv, cell.causal, cell.left)
    return first, last


def _mask(cell, scores, top, low):
    """Softcap, then the mask, in place; scores is [heads, rows, keys]."""
    if cell.softcap:
        scores.div_(cell.softcap).tanh_().mul_(cell.softcap)
    if not cell.causal and cell.left is None:
        return
    rows, keys = scores.shape[1:]
    diagonal = torch.arange(top, top + rows, device=scores.device) + cell.len_kv - cell.len_q
    key = torch.arange(low, low + keys, device=scores.device)
    hidden = torch.zeros(rows, keys, dtype=torch.bool, device=scores.device)
    if cell.causal:
        hidden |= key[None] > diagonal[:, None]
    if cell.left is not None:
        hidden |= key[None] < diagonal[:, None] - cell.left
    scores.masked_fill_(hidden, float("-inf"))


def gemm(a, b, bias=None, activation=None, residual=None):
    """a @ b.mT with an epilogue, in float32; b is [N, K]."""
    out = torch.empty(a.shape[0], b.shape[0], dtype=torch.float32, device=a.device)
    with full_precision():
        left = a.float()
        for first in range(0, b.shape[0], COLUMNS):
            part = slice(first, first + COLUMNS)
            out[:, part] = left @ b[part].float().mT
    if bias is not None:
        out += bias.float()
    if activation == "swiglu":
        gate, up = out.chunk(2, dim=1)
        out = torch.nn.functional.silu(gate) * up
    elif activation is not None:
        out = getattr(torch.nn.functional, activation)(out)
    if residual is not None:
        out += residual.float()
    return out


def judge(actual, expected, dtype):
    """The error of a result as {"norm", "worst_row"}; raises Wrong beyond the limits."""
    if actual.shape != expected.shape:
        raise Wrong(f"wrong shape {tuple(actual.shape)}, expected {tuple(expected.shape)}")
    missing = int(torch.isnan(actual).sum())
    if missing:
        raise Wrong(f"NaN in {missing} of {actual.numel()} elements: out was not fully written")
    difference = actual.float() - expected
    error = {
        "norm": (_norm(difference) / _norm(expected)).item(),
        "worst_row": (_norm(difference, -1) / _norm(expected, -1)).max().item(),
    }
    limit = LIMITS[dtype]
    if not (error["norm"] <= limit and error["worst_row"] <= limit * ROW_FACTOR):
        raise Wrong(
            f"differs from float32 by {error['norm']:.3g} (limit {limit:g}), "
            f"in its worst row by {error['worst_row']:.3g} (limit {limit * ROW_FACTOR:g})"
        )
    return error


def _norm(x, dim=None):
    return torch.linalg.vector_norm(x, dim=dim)
