"""The functions here draw calls at random, each a case that judges itself.

Tables of cases have the shapes and options that somebody thought of. What a kernel does with others
shows here: head dim 248, for which two warps wrote 256 columns, was in none of them.

KINDS names the functions that draw: of a Draw, which a text decides, they make what has check().
Every call that they draw is valid, so that a refusal is a failure too.
"""

from __future__ import annotations

import dataclasses
import math
import random
import re

from append_case import AppendCase
from attention_case import AttentionCase
from block_case import BlockCase
from context_case import ContextCase
from gemm_case import GemmCase
from grid import sized
from grouped_case import GroupedCase
from merge_case import MergeCase
from norm_case import NormCase
from plan_case import check_planned
from quantize_case import QuantizeCase
from random_variants import (
    FACTORS,
    LOGITS,
    MASKS,
    NUMBERS,
    SLOPES,
    FlexCase,
    Hooks,
    Part,
    VariantCase,
    Variation,
)
from tree_case import TreeCase
from varlen_case import QUANTIZED, VarlenCase

HALVES = ("bf16", "f16")
FLOATS = (*HALVES, "f32")
# Models have these head dims, some more often than others; all of DIMS are served.
COMMON_DIMS = (64, 64, 128, 128, 128, 256, 96, 80, 192, 160)
DIMS = range(8, 257, 8)
# A call multiplies at most so many pairs of a query and a key, of all heads.
MOST_PAIRS = sized(small=1 << 18, full=1 << 26)


class Draw(random.Random):
    def chance(self, share):
        return self.random() < share

    def size(self, low, high):
        """Returns a number from low to high, whose logarithm is uniform."""
        return round(math.exp(self.uniform(math.log(low), math.log(high))))

    def length(self, low, high):
        """Does what size() does, up to a twelfth of `high` on the emulated device."""
        return self.size(low, max(low + 1, sized(small=high // 12, full=high)))

    def head_dim(self):
        return self.choice(COMMON_DIMS if self.chance(0.6) else DIMS)

    def heads(self):
        kv = self.choice((1, 1, 2, 3, 4, 8))
        return {"heads": kv * self.choice((1, 1, 2, 3, 4, 5, 7, 8, 16)), "heads_kv": kv}

    def storage(self):
        return self.choice(("plain", "plain", "plain", "guarded", "offset", "odd"))

    def some(self, share, **choices):
        """Picks each name with the probability `share`, and one of its values for it."""
        return {name: self.choice(of) for name, of in choices.items() if self.chance(share)}


def options(draw, len_kv):
    """Draws the options that all calls of attention take."""
    drawn = draw.some(
        0.15,
        softcap=(3.0, 30.0, 50.0),
        scale=(0.3, -0.2, 0.0, 1.0),
        alibi=("h", "bh"),
        sinks=("f32", "bf16", "f16", "-inf"),
        magnitude=(0.01, 4.0),
    )
    if draw.chance(0.3):
        reach = draw.choice((0, 1, 7, 33, 64, 100, 127, 128, 200, 511, 1000, len_kv))
        drawn["window"] = draw.choice(((reach, 0), (reach, -1), (-1, reach), (reach, 31)))
    return drawn


def attention(draw):
    len_q, len_kv = draw.length(1, 1500), draw.length(1, 3000)
    if draw.chance(0.4):
        len_kv = len_q
    shape = dict(batch=draw.choice((1, 1, 2, 3)), **draw.heads())
    while shape["batch"] * shape["heads"] * len_q * len_kv > MOST_PAIRS:
        len_q, len_kv = len_q // 2 + 1, len_kv // 2 + 1
    return AttentionCase(
        dtype=draw.choice(HALVES), head_dim=draw.head_dim(), len_q=len_q, len_kv=len_kv,
        causal=draw.chance(0.6), layout=draw.choice(("bshd", "bhsd")),
        storage=draw.choice((draw.storage(), draw.storage(), "permuted", "head_slice")),
        out_storage=draw.choice(("plain", "guarded", "permuted", "offset")),
        **draw.some(0.2, head_dim_v=DIMS), **shape, **options(draw, len_kv),
    )  # fmt: skip


def lengths(draw, count, op):
    """Draws the lengths of queries and keys of sequences that decode, of prompts, or of both."""

    def decoding():
        return draw.choice((1, 1, 1, 2, 3, 4, 8, 16))

    def prompt():
        return draw.length(30, 700)

    def mixed():
        return draw.choice((0, 1, 1, draw.size(2, 30), prompt()))

    def of_keys(queries):
        more = draw.choice((0, 5, draw.length(1, 3000)))
        return draw.choice((queries + more, queries + more, more))

    if op == "kvcache":
        lens_q = [draw.choice((1, 1, 2, 5, 16, 100))] * count
    else:
        of_queries = draw.choice((decoding, prompt, mixed))
        lens_q = [of_queries() for _ in range(count)]
    return lens_q, [of_keys(queries) for queries in lens_q]


def shortened(lens, most):
    return tuple(min(n, most) for n in lens)


def sequences(draw, op=None):
    """Draws a call of flash_attention_varlen or flash_attention_with_kvcache."""
    op = op or draw.choice(("varlen", "varlen", "varlen", "kvcache"))
    lens_q, lens_k = lengths(draw, draw.size(1, 14), op)
    heads = draw.heads()
    while sum(q * k for q, k in zip(lens_q, lens_k)) * heads["heads"] > MOST_PAIRS:
        lens_q = shortened(lens_q, max(lens_q) // 2 + 1)
        lens_k = shortened(lens_k, max(lens_k) // 2 + 1)
    flags = tuple(draw.chance(0.5) for _ in lens_q)
    stored = draw.choice(("", "", *QUANTIZED))
    case = VarlenCase(
        lens_q=tuple(lens_q), lens_k=tuple(lens_k), dtype=draw.choice(HALVES), op=op,
        head_dim=draw.head_dim(), causal=draw.choice((True, True, False)),
        keys=draw.choice(("paged", "paged", "paged", "cache", "lists")),
        page=draw.choice((1, 1, 2, 4, 8, 16, 16, 24, 32, 40, 64, 64, 128, 256)),
        following=draw.choice((1, 1, 4, 200)),
        cache=draw.choice(("nhd", "nhd", "hnd", "interleaved", "pool", "padded")),
        num_splits=draw.choice((0, 0, 1)), stored=stored,
        scales=draw.choice(("", "one", "heads", "both", "expanded")) if stored else "",
        **draw.some(0.1, head_dim_v=DIMS, out_scale=(0.02,)), **heads, **options(draw, max(lens_k)),
    )  # fmt: skip
    if op == "kvcache":
        pads = tuple(draw.choice((0, 3, 17, 70)) for _ in lens_q)
        return dataclasses.replace(case, **draw.some(0.15, entries=("shuffled",), leftpad=(pads,)))
    keys = ("packed", "cache by offsets")
    return dataclasses.replace(
        case, **draw.some(0.2, causal=(flags,), loose=(7, 900, 30000), keys=keys)
    )


@dataclasses.dataclass(frozen=True)
class Planned:
    """The case is called without a plan and with one, and both results are compared."""

    case: VarlenCase

    def check(self):
        check_planned(self.case)


def planned(draw):
    return Planned(sequences(draw))


def tree(draw):
    count, tokens = draw.size(1, 6), draw.choice((2, 5, 8, 16, 33, 64))
    return TreeCase(
        lens_q=(tokens,) * count,
        lens_k=tuple(tokens + draw.choice((0, 1, draw.length(1, 900))) for _ in range(count)),
        dtype=draw.choice(HALVES), head_dim=draw.head_dim(), op="kvcache",
        keys=draw.choice(("paged", "cache")), page=draw.choice((1, 16, 64)),
        words=draw.choice(("int64", "uint64", "strided")), stored=draw.choice(("", "", "e4m3")),
        **draw.heads(),
    )  # fmt: skip


def context_parallel(draw):
    lens_q = tuple(draw.choice((1, 2, 5, draw.length(2, 200))) for _ in range(draw.size(1, 6)))
    return ContextCase(
        lens_q=lens_q, lens_k=tuple(n + draw.length(1, 900) for n in lens_q),
        dtype=draw.choice(HALVES), head_dim=draw.head_dim(), causal=draw.chance(0.8),
        keys=draw.choice(("paged", "cache", "packed")), page=draw.choice((1, 16, 64)),
        world=draw.choice((2, 3, 8)), interleave=draw.choice((1, 4, 16)), **draw.heads(),
    )  # fmt: skip


def gemm(draw):
    m = draw.choice((draw.size(1, 64), draw.length(65, 1100), 128, 256))
    n = draw.choice((2 * draw.length(1, 1500), 8 * draw.length(1, 400), 64 * draw.length(1, 40)))
    k = draw.choice((draw.length(1, 3000), 8 * draw.length(1, 400), 64 * draw.length(1, 60)))
    return GemmCase(
        dtype=draw.choice(HALVES), m=m, n=n, k=k,
        layout=draw.choice(("nt", "nt", "nn", "tn", "tt")),
        storage=draw.storage(), out_storage=draw.storage(),
        **draw.choice(({}, {}, {}, {"batch_a": 3}, {"batch_a": 3, "batch_b": 3})),
        **draw.some(0.25, bias=FLOATS, residual=FLOATS, out_dtype=FLOATS, alpha=(0.5, -2.0),
                    activation=("relu", "silu", "gelu", "gelu_tanh", "swiglu", "geglu")),
    )  # fmt: skip


def bytes_gemm(draw):
    """Draws products of 8-bit floats, whose rows must begin at multiples of 16 bytes."""
    forms = ("scalar", "tensor", "vector", "matrix")
    return GemmCase(
        dtype=draw.choice(("e4m3", "e5m2")), m=draw.length(1, 1100), n=16 * draw.length(1, 150),
        k=16 * draw.length(1, 250), scale_a=draw.choice(forms), scale_b=draw.choice(forms),
        **draw.some(0.25, bias=HALVES, residual=HALVES, precision=("fast",), activation=("silu",)),
    )  # fmt: skip


def blocks(draw):
    return BlockCase(
        m=draw.length(1, 900), n=draw.choice((128 * draw.length(1, 12), 8 * draw.length(1, 180))),
        k=draw.choice((128 * draw.length(1, 20), 16 * draw.length(1, 150))),
        columns=draw.chance(0.3), batch=draw.choice((0, 0, 0, 2)), contiguous=draw.choice("km"),
        trans_b=draw.chance(0.5), out_dtype=draw.choice(FLOATS),
        **draw.some(0.25, bias=("bf16",), residual=("bf16",), activation=("silu",)),
    )  # fmt: skip


def groups(draw):
    dtype = draw.choice((*HALVES, "e4m3"))
    is_byte = dtype == "e4m3"
    few, many = (draw.size(1, 30), draw.length(1, 300))
    sizes = draw.choices((0, 1, few, many, draw.size(1, 30)), k=draw.size(1, 20))
    scales = draw.choice(("vectors", "blocks", "columns")) if is_byte else ""
    gated = () if scales in ("blocks", "columns") else ("swiglu",)
    return GroupedCase(
        by=draw.choice(("offsets", "counts")), sizes=tuple(sizes), beyond=draw.choice((0, 3, 40)),
        n=16 * draw.length(1, 60), k=16 * draw.length(1, 60), dtype=dtype,
        layout_b="t" if is_byte else draw.choice("ttn"),
        scales=scales, expected_rows=draw.choice((0, 0, 20, 500)),
        **draw.some(0.25, activation=("silu", *gated), bias=("bf16", "f32"), residual=("bf16",),
                    bias_form=("all", "batch")),
    )  # fmt: skip


def norm(draw):
    op = draw.choice(("rms_norm", "layer_norm"))
    sums = {"residual": True, "sums": draw.choice(("", "new", "residual", "x"))}
    return NormCase(
        op=op, dtype=draw.choice(FLOATS), shape=(draw.length(1, 200), draw.size(1, 9000)),
        weight=draw.choice(("same", "", "f32", "bf16")), storage=draw.storage(),
        out_storage=draw.storage(), **(sums if draw.chance(0.4) else {}),
        **draw.some(0.25, out_dtype=FLOATS, activation=("silu", "gelu"), weight_offset=(1.0,)),
    )  # fmt: skip


def append(draw):
    dim = draw.choice((64, 128, 256, 8 * draw.size(1, 32)))
    cache = draw.choice(("", "", *QUANTIZED))
    query = {"queries": draw.choice((1, 4, 6)), "query_out": draw.choice(("guarded", "query", ""))}
    rotary = {"rotary": draw.choice((dim, max(dim // 16 * 8, 8))), "interleaved": draw.chance(0.4)}
    return AppendCase(
        dtype=draw.choice(HALVES), cache=cache, tokens=draw.length(1, 300), pages=90, dim=dim,
        heads=draw.choice((1, 2, 3, 8)), page_size=draw.choice((4, 16, 24)),
        layout=draw.choice(("plain", "rows", "hnd", "layers", "odd")), storage=draw.storage(),
        scales=draw.choice(("scalar", "one", "heads", "expanded")) if cache else "",
        positions=draw.choice(("int64", "int32")),
        **(query if draw.chance(0.5) else {}), **(rotary if draw.chance(0.6) else {}),
        **draw.some(0.3, k_weight=("bf16", "f32"), dim_v=(64,)),
    )  # fmt: skip


def quantize(draw):
    return QuantizeCase(
        shape=(draw.length(1, 300), draw.choice((128 * draw.size(1, 40), 8 * draw.size(1, 600)))),
        dtype=draw.choice(HALVES), out_dtype=draw.choice(tuple(QUANTIZED)),
        group=draw.choice((128, 128, 64, None)), power_of_two=draw.chance(0.3),
        storage=draw.storage(), columns_first=draw.chance(0.4),
        **draw.some(0.5, activation=("swiglu", "geglu", "geglu_tanh")),
    )  # fmt: skip


def merge(draw):
    parts, tokens = draw.size(1, 9), draw.size(1, 60)
    columns = draw.choice((8 * draw.size(1, 64), draw.size(1, 300)))
    empty = {(draw.randrange(parts), draw.randrange(tokens)) for _ in range(draw.choice((0, 1, 5)))}
    return MergeCase(
        dtype=draw.choice(FLOATS), shape=(parts, tokens, draw.choice((1, 2, 3, 8)), columns),
        storage=draw.storage(), out_storage=draw.storage(), base=draw.choice("e2"),
        lse_storage=draw.choice(("plain", "plain", "expanded")), layout=draw.choice(("ht", "th")),
        empty=tuple(empty), **draw.some(0.25, out_dtype=FLOATS, sinks=("f32", "bf16")),
    )  # fmt: skip


def hooks(draw, batch, heads, length):
    """Draws masks and logits of a user's own."""

    def part(rules, numbers):
        rule = draw.choice(tuple(rules))
        if "{x} * kv" in rule or "{x} * abs" in rule:
            numbers = SLOPES
        return Part(rule, draw.choice(numbers) if "{x}" in rule else 0)

    def variation():
        count = draw.choice((0, 1, 1, 2, 3))
        return Variation(
            masks=tuple(part(MASKS, NUMBERS) for _ in range(count)),
            joints=tuple(draw.choice(("&&", "&&", "||")) for _ in range(count - 1)),
            logits=part(LOGITS, FACTORS) if count == 0 or draw.chance(0.4) else None,
        )

    variations = tuple(variation() for _ in range(draw.choice((1, 1, 2))))
    return Hooks(variations, batch, heads, length)


def variants(draw):
    """Draws calls of sequences or of flash_attention, with masks and logits of a user's own."""
    if draw.chance(0.4):
        case = sequences(draw)
        length = max(*case.lens_q, *case.whole_lens_k) + 1
        own = hooks(draw, case.batch, case.heads, length)
        # With padding before them, variants see other places of keys than the textbook does.
        return dataclasses.replace(case, leftpad=(), variant=own)
    case = attention(draw)
    return VariantCase(case, hooks(draw, case.batch, case.heads, max(case.len_q, case.len_kv)))


def flex(draw):
    len_q, len_kv = draw.length(1, 1200), draw.length(1, 2000)
    batch, heads = draw.choice((1, 2)), draw.heads()
    while batch * heads["heads"] * len_q * len_kv > MOST_PAIRS:
        len_q, len_kv = len_q // 2 + 1, len_kv // 2 + 1
    own = hooks(draw, batch, heads["heads"], max(len_q, len_kv))
    block = draw.choice((0, 0, 16, 64, 128, 128, 100)) if own.has_masks() else 0
    rules = [part.rule for one in own.variations for part in one.masks]
    shared = draw.chance(0.5) and not any(re.search(r"\b(b|h|lengths)\b", rule) for rule in rules)
    return FlexCase(
        own, heads["heads_kv"], len_q, len_kv, dim=draw.choice((16, 32, 64, 64, 128, 128, 256)),
        dtype=draw.choice(HALVES), block=block, shared=shared,
    )  # fmt: skip


# A run draws so many calls of each kind: most of attention, which has the most options.
KINDS = {
    attention: 12, sequences: 16, planned: 6, gemm: 10, bytes_gemm: 3, tree: 3, context_parallel: 2,
    blocks: 3, groups: 3, norm: 3, append: 3, quantize: 2, merge: 2, variants: 8, flex: 5,
}  # fmt: skip
