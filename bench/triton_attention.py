"""Attention forward in Triton, ours: a plain peer of what a careful user would write.

Dense, full or causal, grouped heads; square shapes whose lengths are multiples of the tiles.
"""

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
# By head dim: rows, keys, stages, warps; as many keys and stages as the shared memory holds.
TILES = {64: (128, 128, 3, 8), 128: (128, 128, 2, 8), 256: (128, 64, 2, 8)}


@triton.jit
def _over_keys(
    out, total, peak, q, k_block, v_block, step_k, step_v, rows, first, last, scale,
    KEYS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Online softmax over the keys from first to last, in powers of two."""
    keys = tl.arange(0, KEYS)
    for start in tl.range(first, last, KEYS):
        scores = tl.dot(q, tl.load(k_block + start * step_k)) * scale
        if MASKED:
            scores = tl.where(rows[:, None] >= (start + keys)[None, :], scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_block + start * step_v)
        out = tl.dot(weights.to(v.dtype), v, out * shrink[:, None])
        peak = higher
    return out, total, peak


@triton.jit
def _attention(
    q, k, v, out, scale, length, heads, ratio,
    q_batch, q_row, q_head, k_batch, k_row, k_head, v_batch, v_row, v_head,
    o_batch, o_row, o_head,
    ROWS: tl.constexpr, KEYS: tl.constexpr, DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One program: ROWS rows of one head. Programs with the most keys come first when causal."""
    block = tl.program_id(0)
    if CAUSAL:
        block = tl.num_programs(0) - 1 - block
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = tl.program_id(1) % heads
    top = block * ROWS
    rows = top + tl.arange(0, ROWS)
    keys = tl.arange(0, KEYS)
    dims = tl.arange(0, DIM)
    q += batch * q_batch + head * q_head
    k += batch * k_batch + (head // ratio) * k_head
    v += batch * v_batch + (head // ratio) * v_head
    out += batch * o_batch + head * o_head
    tile = tl.load(q + rows[:, None] * q_row + dims[None, :])
    k_block = k + keys[None, :] * k_row + dims[:, None]
    v_block = v + keys[:, None] * v_row + dims[None, :]
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, DIM], tl.float32)
    unmasked = top if CAUSAL else length
    sums, total, peak = _over_keys(
        sums, total, peak, tile, k_block, v_block, k_row, v_row, rows, 0, unmasked, scale,
        KEYS, False,
    )  # fmt: skip
    if CAUSAL:
        sums, total, peak = _over_keys(
            sums, total, peak, tile, k_block, v_block, k_row, v_row, rows, top, top + ROWS, scale,
            KEYS, True,
        )  # fmt: skip
    sums = sums / total[:, None]
    tl.store(out + rows[:, None] * o_row + dims[None, :], sums.to(out.dtype.element_ty))


def refusal(q, k, causal):
    """Why the kernel does not serve a shape, or None."""
    length, dim = q.shape[1], q.shape[3]
    if dim not in TILES:
        return f"our Triton kernel has head dims {', '.join(map(str, TILES))}"
    rows, keys = TILES[dim][:2]
    if length % rows or k.shape[1] % keys:
        return f"our Triton kernel needs lengths that are multiples of {max(rows, keys)}"
    if causal and length != k.shape[1]:
        return "our Triton kernel is causal on squares only"
    return None


def attention(q, k, v, causal, out):
    """[batch, length, heads, dim], unit stride in the last one."""
    batch, length, heads, dim = q.shape
    rows, keys, stages, warps = TILES[dim]
    _attention[(length // rows, batch * heads)](
        q, k, v, out, dim**-0.5 * LOG2_E, k.shape[1], heads, heads // k.shape[2],
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        ROWS=rows, KEYS=keys, DIM=dim, CAUSAL=causal, num_stages=stages, num_warps=warps,
    )  # fmt: skip
    return out


def empty_like(q):
    return torch.full_like(q, float("nan"))
