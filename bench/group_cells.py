"""Cells of products of rows in groups and of whole layers of experts, and their grid."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random

from cells import ITEM_BYTES

BLOCKS = "f8 blocks"
BLOCK = 128


def _blocks(size):
    return -(-size // BLOCK)


@dataclasses.dataclass(frozen=True)
class GroupCell:
    """Rows in groups, each of which is multiplied by a matrix [N, K] of its own, transposed."""

    sizes: tuple[int, ...]  # rows of each group
    n: int
    k: int
    dtype: str = "bf16"
    capacity: int = 0  # rows that each group has room for; 0: rows follow each other
    expected_rows: int = 0  # what the caller says of a group; 0: nothing
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        return f"{self.title} {self.n}x{self.k} {self.dtype}"

    @property
    def groups(self):
        return len(self.sizes)

    @property
    def rows(self):
        return sum(self.sizes)

    @property
    def flops(self):
        """Counts rows that groups have; room that is left costs nothing here."""
        return 2 * self.rows * self.n * self.k

    def _matrices(self, count):
        scales = 4 * _blocks(self.n) * _blocks(self.k) if self.dtype == BLOCKS else 0
        return count * (self.n * self.k * ITEM_BYTES[self.dtype] + scales)

    def _rows(self, count):
        scales = 4 * _blocks(self.k) if self.dtype == BLOCKS else 0
        return count * (self.k * ITEM_BYTES[self.dtype] + scales + 2 * self.n)

    @property
    def bytes(self):
        """The matrices of groups that have rows, these rows and their results, and all scales."""
        used = sum(size > 0 for size in self.sizes)
        return self._matrices(used) + self._rows(self.rows) + 4 * self.groups

    stream_bytes = bytes

    @property
    def stored_bytes(self):
        """Counts one set of inputs: all matrices, and the room of all groups."""
        rows = self.groups * self.capacity if self.capacity else self.rows
        return self._matrices(self.groups) + self._rows(rows)

    @property
    def inputs(self):
        return (self.sizes, self.n, self.k, self.dtype, self.capacity)


@dataclasses.dataclass(frozen=True)
class LayerCell:
    """A layer of experts from the router's logits on: SwiGLU from `hidden` to `inner` and back."""

    tokens: int
    experts: int
    top_k: int
    hidden: int
    inner: int
    dtype: str = "bf16"
    title: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        shape = f"{self.tokens} x {self.top_k} of {self.experts} {self.hidden}x{self.inner}"
        return f"layer {shape} {self.dtype}"

    @property
    def flops(self):
        return 2 * self.tokens * self.top_k * 3 * self.hidden * self.inner

    @property
    def _of_an_expert(self):
        elements = 3 * self.hidden * self.inner
        return elements * ITEM_BYTES[self.dtype] + (
            4 * 3 * _blocks(self.hidden) * _blocks(self.inner) if self.dtype == BLOCKS else 0
        )

    @property
    def used(self):
        """How many experts have a token, on average over routers that prefer none."""
        idle = (1 - self.top_k / self.experts) ** self.tokens
        return round(self.experts * (1 - idle))

    @property
    def bytes(self):
        """The weights of the experts that have a token, and 16-bit tokens in and out once."""
        return self.used * self._of_an_expert + self.tokens * (4 * self.hidden + 4 * self.experts)

    stream_bytes = bytes

    @property
    def stored_bytes(self):
        return self.experts * self._of_an_expert + self.tokens * 4 * (self.hidden + self.experts)

    @property
    def inputs(self):
        return (self.tokens, self.experts, self.top_k, self.hidden, self.inner, self.dtype)


@functools.cache
def routed(tokens, top_k, experts, seed=11):
    """Rows of each expert, if each token goes to `top_k` of them and some are liked more."""
    draw = random.Random(seed)
    likings = [draw.lognormvariate(0, 0.6) for _ in range(experts)]
    cumulative = list(itertools.accumulate(likings))
    sizes = [0] * experts
    for _ in range(tokens):
        chosen: set[int] = set()
        while len(chosen) < top_k:
            missing = top_k - len(chosen)
            chosen.update(draw.choices(range(experts), cum_weights=cumulative, k=missing))
        for expert in chosen:
            sizes[expert] += 1
    return tuple(sizes)


@functools.cache
def about(count, least, most, seed=12):
    """So many sizes from `least` to `most`."""
    draw = random.Random(seed)
    return tuple(draw.randint(least, most) for _ in range(count))


def groups(short=False):
    cells = _contiguous() + _decode() + _masked() + _layers()
    if short:
        cells = [cell for cell in cells if cell.name in SHORT]
    return [[cell] for cell in cells]


SHORT = (
    "contiguous 4 x 8192 4096x7168 f8 blocks",
    "contiguous 4 x 8192 4096x7168 bf16",
    "contiguous Qwen3-30B 4096 x 8 of 128 1536x2048 bf16",
    "contiguous DeepSeek-V3 4096 x 8 of 256 4096x7168 f8 blocks",
    "decode 64 x 8 of 256 4096x7168 f8 blocks",
    "decode 64 x 8 of 256 4096x7168 bf16",
    "masked 32 x ~20 6144x7168 f8 blocks",
    "masked 32 x ~20 6144x7168 bf16",
    "layer 64 x 8 of 64 2048x1408 bf16",
    "layer 4096 x 8 of 64 2048x1408 bf16",
)


def _product(kind, label, sizes, n, k, dtype, group, **more):
    names = {"title": f"{kind} {label}", "group": group, "label": f"{label} {n}x{k} {dtype}"}
    return GroupCell(sizes, n, k, dtype, **names, **more)


def _contiguous():
    """DeepGEMM's published shapes; then experts of models, whose sizes are uneven."""
    cells = [
        _product("contiguous", "4 x 8192", (8192,) * 4, n, k, dtype, "contiguous, even")
        for n, k in ((4096, 7168), (7168, 2048))
        for dtype in (BLOCKS, "bf16")
    ]
    models = (
        ("Mixtral", 2, 8, 28672, 4096, "bf16"),
        ("Qwen3-30B", 8, 128, 1536, 2048, "bf16"),
        ("DeepSeek-V3", 8, 256, 4096, 7168, BLOCKS),
        ("DeepSeek-V3", 8, 256, 7168, 2048, BLOCKS),
    )
    for model, top_k, experts, n, k, dtype in models:
        label, sizes = f"{model} 4096 x {top_k} of {experts}", routed(4096, top_k, experts)
        cells.append(_product("contiguous", label, sizes, n, k, dtype, "contiguous, of models"))
    return cells


def _decode():
    shapes = [
        (tokens, 8, 256, 4096, 7168, dtype) for tokens in (64, 1) for dtype in (BLOCKS, "bf16")
    ]
    shapes.append((64, 6, 64, 2816, 2048, "bf16"))
    return [
        _product(
            "decode", f"{tokens} x {top_k} of {experts}", routed(tokens, top_k, experts),
            n, k, dtype, "decode",
        )
        for tokens, top_k, experts, n, k, dtype in shapes
    ]  # fmt: skip


def _masked():
    shapes = (
        ("32 x ~20", about(32, 12, 28), 20, 6144, 7168),
        ("32 x ~20", about(32, 12, 28), 20, 7168, 3072),
        ("4 x 256", (256,) * 4, 256, 4096, 7168),
    )
    return [
        _product(
            "masked", label, sizes, n, k, dtype, "masked", capacity=1024, expected_rows=expected
        )
        for label, sizes, expected, n, k in shapes
        for dtype in (BLOCKS, "bf16")
    ]


def _layers():
    cells = [LayerCell(tokens, 64, 8, 2048, 1408) for tokens in (1, 64, 4096)]
    cells += [
        LayerCell(tokens, 256, 8, 7168, 2048, dtype)
        for dtype in ("bf16", BLOCKS)
        for tokens in (64, 4096)
    ]
    return [
        dataclasses.replace(cell, group="whole layers", label=cell.name.removeprefix("layer "))
        for cell in cells
    ]
