"""Cells: one shape of one operation each, with its name, its work and its compulsory traffic.

Plain arithmetic, for the grids, the suites and the tests; nothing here needs a GPU or PyTorch.
"""

from __future__ import annotations

import dataclasses
import math

OURS = "kiln"  # the name of our own times among the peers'
# "f8" is e4m3 with sums in fp32, "f8 fast" with the tensor cores' own, "f8 blocks" with scales of
# blocks, "e4m3" that of attention; their outputs are bf16.
ITEM_BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "fp32": 4, "f8": 1, "f8 fast": 1, "f8 blocks": 1,
              "e4m3": 1}  # fmt: skip
CACHE_BYTES = {**ITEM_BYTES, "e5m2": 1, "int8": 1}
TILE = 128  # rows and keys of the tiles in which masks are counted


def key_range(row, len_q, len_kv, causal, left):
    """First and last + 1 key of a row; masks are aligned bottom-right, `left` counts the keys
    before the diagonal's (None = all)."""
    diagonal = row + len_kv - len_q
    first = 0 if left is None else max(0, diagonal - left)
    last = min(len_kv, diagonal + 1) if causal else len_kv
    return first, max(first, last)


def touched_pairs(len_q, len_kv, causal, left=None):
    """How many (row, key) pairs a mask leaves."""
    ranges = (key_range(row, len_q, len_kv, causal, left) for row in range(len_q))
    return sum(last - first for first, last in ranges)


def touched_tiles(len_q, len_kv, causal, left=None, tile=TILE):
    """How many tiles of `tile` rows and keys hold at least one pair that a mask leaves.

    Neighbouring rows' ranges overlap in every mask here, so a block of rows touches one range.
    """
    count = 0
    for top in range(0, len_q, tile):
        bottom = min(top + tile, len_q) - 1
        first, _ = key_range(top, len_q, len_kv, causal, left)
        _, last = key_range(bottom, len_q, len_kv, causal, left)
        if last > first:
            count += (last - 1) // tile - first // tile + 1
    return count


def length_label(length):
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)


@dataclasses.dataclass(frozen=True)
class AttentionCell:
    batch: int
    len_q: int
    len_kv: int
    heads: int
    heads_kv: int
    dim: int
    causal: bool = False
    left: int | None = None  # a window's reach before the diagonal
    softcap: float = 0.0
    dtype: str = "bf16"
    title: str = ""  # a model's name
    group: str = ""
    label: str = ""  # the cell's name inside its group
    decode: bool = False
    dim_v: int | None = None  # of V, where it is not K's

    @property
    def value_dim(self):
        return self.dim if self.dim_v is None else self.dim_v

    @property
    def window(self):
        """Keys seen before and after the diagonal's, -1 = all, as Kiln and FlashAttention take
        them; None = there is no window."""
        return None if self.left is None else (self.left, 0 if self.causal else -1)

    @property
    def mask(self):
        if self.left is not None:
            return f"window {self.left}"
        return "causal" if self.causal else "full"

    @property
    def name(self):
        length = self.len_kv if self.len_q == self.len_kv else f"{self.len_q}x{self.len_kv}"
        heads = f"{self.heads}" if self.heads == self.heads_kv else f"{self.heads}/{self.heads_kv}"
        dims = f"{self.dim}" if self.dim == self.value_dim else f"{self.dim}/{self.value_dim}"
        parts = [self.title, f"D{dims} {self.mask} B{self.batch} S{length} H{heads}"]
        parts.append(f"softcap {self.softcap:g}" if self.softcap else "")
        parts.append(self.dtype if self.dtype != "bf16" else "")
        return " ".join(part for part in parts if part)

    @property
    def pairs(self):
        """Of one head; a dense causal square counts half, as everybody's tables do."""
        if self.causal and self.left is None and self.len_q == self.len_kv:
            return self.len_q * self.len_kv / 2
        return touched_pairs(self.len_q, self.len_kv, self.causal, self.left)

    @property
    def flops(self):
        return 2 * self.batch * self.heads * (self.dim + self.value_dim) * self.pairs

    @property
    def cache_bytes(self):
        """Of K and V."""
        elements = self.batch * self.len_kv * self.heads_kv * (self.dim + self.value_dim)
        return elements * ITEM_BYTES[self.dtype]

    @property
    def bytes(self):
        item = ITEM_BYTES[self.dtype]
        row = self.dim * item + self.value_dim * max(item, 2)
        return self.batch * self.len_q * self.heads * row + self.cache_bytes

    @property
    def stream_bytes(self):
        """What GB/s is reckoned by: a decode step is there to read its cache."""
        return self.cache_bytes if self.decode else self.bytes

    @property
    def inputs(self):
        """Cells of equal inputs can be timed beside each other on the same tensors."""
        fields = (self.batch, self.len_q, self.len_kv, self.heads, self.heads_kv)
        return (*fields, self.dim, self.value_dim, self.dtype)


@dataclasses.dataclass(frozen=True)
class GemmCell:
    """A[M, K] times B[N, K] transposed; `layout` says how they lie: t is the transposed view."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    epilogue: str = "plain"
    layout: str = "nt"
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        epilogue = "" if self.epilogue == "plain" else self.epilogue
        layout = "" if self.layout == "nt" else self.layout
        parts = [self.title, f"{self.m}x{self.n}x{self.k}", self.dtype, layout, epilogue]
        return " ".join(part for part in parts if part)

    @property
    def flops(self):
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self):
        outputs = self.m * self.n
        outputs += self.n if "bias" in self.epilogue else 0
        outputs += self.m * self.n if "residual" in self.epilogue else 0
        item = ITEM_BYTES[self.dtype]
        return (self.m + self.n) * self.k * item + outputs * max(item, 2)

    stream_bytes = bytes

    @property
    def inputs(self):
        return (self.m, self.n, self.k, self.dtype, self.layout)


@dataclasses.dataclass(frozen=True)
class NormCell:
    """A norm of [rows, columns]; with a residual, which is written with the sum."""

    rows: int
    columns: int
    kind: str = "rms_norm"
    dtype: str = "bf16"
    residual: bool = False
    activation: str | None = None
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        parts = [self.title, self.kind, f"{self.rows}x{self.columns}", self.dtype]
        parts += ["residual" if self.residual else "", self.activation or ""]
        return " ".join(part for part in parts if part)

    @property
    def flops(self):
        return 4 * self.rows * self.columns  # a square, a sum, two products

    @property
    def bytes(self):
        """Each of x and out once, of a residual and its sum too; weights are none beside them."""
        return self.rows * self.columns * ITEM_BYTES[self.dtype] * (4 if self.residual else 2)

    stream_bytes = bytes

    @property
    def inputs(self):
        return (self.rows, self.columns, self.dtype)


@dataclasses.dataclass(frozen=True)
class MergeCell:
    """Partial results of so many parts, merged, with their log-sum-exps."""

    parts: int
    tokens: int
    heads: int = 32
    head_dim: int = 128
    dtype: str = "bf16"
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        shape = f"{self.parts}x{self.tokens}x{self.heads}x{self.head_dim}"
        return " ".join(part for part in (self.title, "merge_states", shape, self.dtype) if part)

    @property
    def flops(self):
        return 2 * self.parts * self.tokens * self.heads * self.head_dim

    @property
    def bytes(self):
        """Each part and the result once, and 4 bytes for each log-sum-exp."""
        row = self.head_dim * ITEM_BYTES[self.dtype] + 4
        return (self.parts + 1) * self.tokens * self.heads * row

    stream_bytes = bytes

    @property
    def inputs(self):
        return (self.parts, self.tokens, self.heads, self.head_dim, self.dtype)


@dataclasses.dataclass(frozen=True)
class AppendCell:
    """Keys and values of so many tokens that go to a paged cache; with queries, which are normed
    and rotated like the keys."""

    tokens: int
    heads_kv: int = 8
    head_dim: int = 128
    heads: int = 0  # of the queries; 0: nothing is fused
    cache: str = "bf16"
    hnd: bool = False  # heads before tokens in a page
    page_size: int = 16
    dtype: str = "bf16"
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        shape = f"{self.tokens}x{self.heads_kv}x{self.head_dim}"
        fused = f"norm+rope {self.heads} heads" if self.heads else ""
        parts = [self.title, "append_kv", shape, self.dtype, f"to {self.cache}", fused]
        return " ".join(part for part in [*parts, "hnd" if self.hnd else ""] if part)

    @property
    def flops(self):
        return 8 * self.tokens * (self.heads + self.heads_kv) * self.head_dim  # norm and rotation

    @property
    def bytes(self):
        """Each key and value is read once and written once in the cache's dtype, queries too, and
        8 bytes for each slot, as for each position. Tables and weights are few beside them."""
        item = ITEM_BYTES[self.dtype]
        heads = 2 * self.heads_kv * (item + CACHE_BYTES[self.cache]) + self.heads * 2 * item
        return self.tokens * (heads * self.head_dim + (16 if self.heads else 8))

    stream_bytes = bytes

    @property
    def inputs(self):
        return (self.tokens, self.heads_kv, self.head_dim, self.heads, self.dtype)


@dataclasses.dataclass(frozen=True)
class QuantizeCell:
    """Activations that become 8-bit floats with a scale for each group of columns."""

    rows: int
    columns: int  # of the result
    size: int | None = 128  # columns of a scale; None: all of a row
    gated: bool = False  # SwiGLU before
    dtype: str = "bf16"
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        shape = f"{self.rows}x{self.columns} by {self.size or 'row'}"
        parts = [self.title, "quantize", shape, self.dtype, "swiglu" if self.gated else ""]
        return " ".join(part for part in parts if part)

    @property
    def flops(self):
        return 4 * self.rows * self.columns * (3 if self.gated else 1)

    @property
    def bytes(self):
        """x is read once, and a byte for each element and 4 for each scale are written."""
        item = ITEM_BYTES[self.dtype] * (2 if self.gated else 1) + 1
        scales = 4 * self.rows * -(-self.columns // (self.size or self.columns))
        return self.rows * self.columns * item + scales

    stream_bytes = bytes

    @property
    def inputs(self):
        return (self.rows, self.columns, self.size, self.gated, self.dtype)


@dataclasses.dataclass(frozen=True)
class MoeCell:
    """One of the steps of a mixture of experts: route, permute or unpermute."""

    step: str
    tokens: int
    experts: int
    top_k: int
    columns: int = 7168
    dtype: str = "bf16"
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        shape = f"{self.tokens}x{self.columns} {self.experts}/{self.top_k}"
        return " ".join(part for part in (self.title, f"moe_{self.step}", shape) if part)

    @property
    def flops(self):
        return 2 * self.tokens * (self.experts if self.step == "route" else self.columns)

    @property
    def bytes(self):
        """Each row of a token once and of its experts once, and 4 bytes for each number."""
        pairs = self.tokens * self.top_k
        if self.step == "route":
            return 4 * self.tokens * self.experts + 8 * pairs
        return (self.tokens + pairs) * self.columns * ITEM_BYTES[self.dtype] + 8 * pairs

    stream_bytes = bytes

    @property
    def inputs(self):
        return (self.step, self.tokens, self.experts, self.top_k, self.columns)


@dataclasses.dataclass(frozen=True)
class PdlCell:
    """GEMMs of a decoding step that follow each other in a graph."""

    m: int
    shapes: tuple  # (n, k) of each
    pdl: str = "off"  # off, on or weights
    dtype: str = "bf16"
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        what = f"{len(self.shapes)} GEMMs M{self.m} pdl {self.pdl}"
        return " ".join(part for part in (self.title, what) if part)

    @property
    def flops(self):
        return 2 * self.m * sum(n * k for n, k in self.shapes)

    @property
    def bytes(self):
        return ITEM_BYTES[self.dtype] * sum(n * k + self.m * (n + k) for n, k in self.shapes)

    stream_bytes = bytes

    @property
    def inputs(self):
        return (self.m, self.shapes, self.dtype)


def floors_us(cell, ceilings):
    """Microseconds that the bytes and the operations take at the measured ceilings."""
    return {
        "bytes": cell.bytes / ceilings["bytes_per_s"] * 1e6,
        # Sums and squares outside the tensor cores have no ceiling here: their bytes come first.
        "operations": cell.flops / ceilings["flops_per_s"].get(cell.dtype, math.inf) * 1e6,
    }
