"""GEMM in Triton, ours: a plain peer of what a careful user would write. A[M, K] B[N, K]^T."""

import triton
import triton.language as tl

# Tiles of rows, columns and depth, stages, warps; the depth is of two-byte elements.
LARGE = (128, 256, 64, 3, 8)
MEDIUM = (128, 128, 64, 4, 4)
NARROW = (64, 64, 128, 4, 4)
SKINNY = (16, 64, 256, 4, 4)
DEEPEST = 256
GROUP = 8  # tiles of rows that share columns in the L2


@triton.jit
def _gemm(
    a, b, out, m, n, k, a_row, b_row, out_row,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
    WHOLE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: one tile of the output. WHOLE: k is a multiple of DEPTH."""
    tiles_m, tiles_n = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    tile = tl.program_id(0)
    per_group = GROUP * tiles_n
    first = tile // per_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + tile % per_group % height
    tile_n = tile % per_group // height
    rows = tile_m * ROWS + tl.arange(0, ROWS)
    columns = tile_n * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    # Rows beyond the edge repeat the last one: no mask in the loop; the store leaves them out.
    a_block = a + tl.minimum(rows, m - 1)[:, None] * a_row + depth[None, :]
    b_block = b + tl.minimum(columns, n - 1)[None, :] * b_row + depth[:, None]
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in tl.range(0, k, DEPTH):
        if WHOLE:
            left = tl.load(a_block + start)
            right = tl.load(b_block + start)
        else:
            left = tl.load(a_block + start, mask=depth[None, :] < k - start, other=0.0)
            right = tl.load(b_block + start, mask=depth[:, None] < k - start, other=0.0)
        sums = tl.dot(left, right, sums, input_precision=PRECISION)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    place = out + rows[:, None] * out_row + columns[None, :]
    tl.store(place, sums.to(out.dtype.element_ty), mask=inside)


def tiles(m, n, processors, aligned=True):
    """The largest tiles that still give every multiprocessor one. LARGE spills when unaligned."""
    if m <= 16:
        return SKINNY
    for choice in (LARGE, MEDIUM) if aligned else (MEDIUM,):
        if m > 64 and triton.cdiv(m, choice[0]) * triton.cdiv(n, choice[1]) >= processors:
            return choice
    return NARROW


def refusal(a, b, out):
    """Why the kernel does not serve a shape, or None."""
    if max(a.numel(), b.numel(), out.numel()) >= 2**31:
        return "our Triton kernel counts elements in 32 bits"
    return None


def gemm(a, b, out, processors):
    """out = a @ b.mT; rows of unit stride."""
    (m, k), n = a.shape, b.shape[0]
    rows, columns, depth, stages, warps = tiles(m, n, processors, aligned=k % DEEPEST == 0)
    depth = depth * 2 // a.element_size()
    _gemm[(triton.cdiv(m, rows) * triton.cdiv(n, columns),)](
        a, b, out, m, n, k, a.stride(0), b.stride(0), out.stride(0),
        ROWS=rows, COLUMNS=columns, DEPTH=depth, GROUP=GROUP, WHOLE=k % depth == 0,
        PRECISION="tf32" if a.element_size() == 4 else "ieee", num_stages=stages, num_warps=warps,
    )  # fmt: skip
    return out
