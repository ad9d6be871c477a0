"""Cells of attention over sequences that have lengths of their own, and their grid."""

from __future__ import annotations

import dataclasses
import random

from cells import CACHE_BYTES, ITEM_BYTES, length_label, touched_pairs


@dataclasses.dataclass(frozen=True)
class ServingCell:
    lens_q: tuple[int, ...]
    lens_k: tuple[int, ...]
    page: int = 0  # keys of a page; 0: packed if there is no page
    following: int = 1  # so many pages follow one another in memory
    heads: int = 32
    heads_kv: int = 8
    dim: int = 128
    left: int | None = None  # a window's reach before the diagonal
    graph: bool = False  # timed as a replayed graph
    dtype: str = "bf16"
    cache: str = ""  # the dtype of keys and values; "": dtype
    # "planned": the call has a plan, made before; "with its plan": both are timed; "": neither.
    plan: str = ""
    group: str = ""
    label: str = ""

    @property
    def name(self):
        keys = f"page {self.page}" if self.page else "contiguous"
        if self.following > 1:
            keys += f", runs of {self.following}"
        return ", ".join(filter(None, (f"{self.group}: {self.label}", keys, self.cache, self.plan)))

    @property
    def batch(self):
        return len(self.lens_q)

    @property
    def flops(self):
        pairs = sum(touched_pairs(q, k, True, self.left) for q, k in zip(self.lens_q, self.lens_k))
        return 4 * self.heads * self.dim * pairs

    @property
    def stream_bytes(self):
        """Decoding is there to read these: the keys and values that are seen."""
        reach = (q + self.left if self.left is not None else k
                 for q, k in zip(self.lens_q, self.lens_k))  # fmt: skip
        rows = sum(min(k, seen) for k, seen in zip(self.lens_k, reach))
        return 2 * rows * self.heads_kv * self.dim * CACHE_BYTES[self.cache or self.dtype]

    @property
    def bytes(self):
        queries = 2 * sum(self.lens_q) * self.heads * self.dim * ITEM_BYTES[self.dtype]
        return self.stream_bytes + queries

    @property
    def inputs(self):
        return dataclasses.astuple(self)


def log_normal(count, mean, most, seed=5):
    """Lengths in multiples of 64, as requests have them: most are short, a few are long."""
    draw = random.Random(seed)
    lengths = [draw.lognormvariate(0, 0.8) for _ in range(count)]
    factor = mean * count / sum(lengths)
    return tuple(min(most, max(64, int(n * factor) // 64 * 64)) for n in lengths)


def serving(short=False):
    cells: list[ServingCell] = []

    def add(group, label, lens_q, lens_k, pages=(0, 64, 16, 1), **more):
        cells.extend(
            ServingCell(tuple(lens_q), tuple(lens_k), page, group=group, label=label, **more)
            for page in (pages[:2] if short else pages)
        )

    for batch, keys in ((16, 8192), (64, 8192), (128, 4096), (24, 6144), (48, 1536)):
        add("decode", f"{batch} x {length_label(keys)}", [1] * batch, [keys] * batch)
    for batch, keys in ((1, 1024), (1, 8192), (1, 32768), (3, 5056)):
        label = f"{batch} x {length_label(keys)}"
        add("decode in a graph", label, [1] * batch, [keys] * batch, (0, 64), graph=True)
    for batch, graph in ((64, False), (1, True)):
        group = "decode in a graph" if graph else "decode"
        cells.extend(
            ServingCell((1,) * batch, (8192,) * batch, page, graph=graph, cache="e4m3",
                        group=f"{group} of 8 bits", label=f"{batch} x 8k")
            for page in ((0, 64) if short else (0, 64, 16))
        )  # fmt: skip
    lengths = log_normal(64, 4096, 32768)
    equal = sum(lengths) // 64 // 64 * 64
    add("64 requests", "log-normal", [1] * 64, lengths, (0, 64))
    add("64 requests", "equal", [1] * 64, [equal] * 64, (0, 64))
    for queries in (1, 2, 4, 8, 16):
        add("16 x 8k, several queries", f"{queries}", [queries] * 16, [8192] * 16, (0, 64))
    for label, lens_k in (("1 x 1k", (1024,)), ("1 x 8k", (8192,)), ("1 x 32k", (32768,)),
                          ("16 x 8k", (8192,) * 16), ("64 log-normal", lengths)):  # fmt: skip
        for plan in ("", "planned", "with its plan"):
            if plan or len(lens_k) > 1:  # the others are above
                add("decode in a graph", label, [1] * len(lens_k), lens_k, (64,), graph=True,
                    plan=plan)  # fmt: skip
    gpt_oss = {"heads": 64, "heads_kv": 8, "dim": 64}
    add("gpt-oss decode", "window 128", [1] * 64, [8192] * 64, (64,), left=127, **gpt_oss)
    add("gpt-oss decode", "128 keys", [1] * 64, [128] * 64, (64,), **gpt_oss)
    if short:
        return [[cell] for cell in cells[::4]]
    add("prefill", "16k", [16384], [16384], (0,))
    add("prefill", "16 x 1k", [1024] * 16, [1024] * 16)
    add("prefill", "8k + 64 x 128", [8192] + [128] * 64, [8192] + [128] * 64, (0,))
    add("prefill", "2k of 64k", [2048], [65536])
    # As an engine hands out pages: those of a prompt mostly follow one another.
    add("prefill", "16 x 1k", [1024] * 16, [1024] * 16, (1,), following=1000)
    add("prefill", "2k of 64k", [2048], [65536], (1,), following=1000)
    add("prefill of 8 bits", "16 x 1k", [1024] * 16, [1024] * 16, cache="e4m3")
    add("prefill of 8 bits", "2k of 64k", [2048], [65536], cache="e4m3")
    uneven = log_normal(12, 3000, 16384, seed=7)
    add("prefill", "12 log-normal", uneven, uneven, (0, 64))
    add("prefill", "5 x 700 of 9000", [700] * 5, [9000] * 5, (0, 64))
    add("prefill of 8 bits", "5 x 700 of 9000", [700] * 5, [9000] * 5, (0, 64), cache="e4m3")
    four = [4096] * 4
    add("gpt-oss prefill", "4 x 4k, window 128", four, four, (0, 64), left=127, **gpt_oss)
    add("mixed", "2k prefill + 63 x 2k decode", [2048] + [1] * 63, [2048] * 64, (64,))
    add("mixed", "2k prefill alone", [2048], [2048], (64,))
    add("mixed", "63 x 2k decode alone", [1] * 63, [2048] * 63, (64,))
    for label, heads, lens_q, lens_k in (
        ("1k of 8k + 100 decode", (32, 8), [1024] + [1] * 100, [8192] + [2048] * 100),
        ("512 of 20k + 40 x 8 of 4k", (32, 8), [512] + [8] * 40, [20000] + [4096] * 40),
        ("17 of 3k and of 2500", (8, 1), [17, 17], [3000, 2500]),
    ):
        for plan in ("", "planned", "with its plan"):
            add("mixed in a graph", label, lens_q, lens_k, (0, 64), graph=True, plan=plan,
                heads=heads[0], heads_kv=heads[1])  # fmt: skip
    for pairs in (  # of queries and keys
        [(700, 40000), (2000, 20000), (300, 60000)],
        [(395, 3255), (239, 15402), (104, 104), (2190, 2190)],
        [(512, 10000), (512, 42000), (512, 1000)],
    ):
        label = ", ".join(f"{q} of {length_label(k)}" for q, k in pairs)
        seeing, seen = zip(*pairs)
        add("prefill of several lengths", label, seeing, seen, (0, 64), graph=True)
    return [[cell] for cell in cells]
