"""Cells of attention with masks and biases of a user's own, and their grid."""

from __future__ import annotations

import dataclasses

from cells import AttentionCell, length_label

WINDOW = 1024  # keys before the diagonal's
NEAR = 128  # the same, of the long row
DOCUMENTS = 8  # of a sequence, equally long
PREFIX = 4  # a sequence's share that is its prefix
CHUNK = 1024
GLOBALS = 64  # keys and queries that see all and are seen by all

BUILT_IN, EXPRESSION, CALLABLE, BLOCK_MASK, CUT = (
    "built-in", "expression", "callable", "block mask", "cut keys",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class VariantCell(AttentionCell):
    """One recipe of recipes.py, said in one of the ways above. Positions are bottom-right."""

    recipe: str = "causal"
    way: str = EXPRESSION

    @property
    def name(self):
        return f"{self.group}: {self.label}"

    @property
    def pairs(self):
        shift = self.len_kv - self.len_q
        seen = SEEN.get(self.recipe, SEEN["causal"])
        return sum(seen(row + shift, self.len_kv) for row in range(self.len_q))


def _seen_by_global_window(q, keys):
    near = range(max(0, q - WINDOW), min(keys, q + WINDOW + 1))
    return keys if q < GLOBALS else len(near) + max(0, GLOBALS - near[0]) - max(0, GLOBALS - keys)


# How many keys a query at a place sees; recipes that are not here are causal.
SEEN = {
    "causal": lambda q, keys: q + 1,
    "window": lambda q, keys: min(q, WINDOW) + 1,
    "near window": lambda q, keys: min(q, NEAR) + 1,
    "prefix": lambda q, keys: max(q + 1, keys // PREFIX),
    "documents": lambda q, keys: q % (keys // DOCUMENTS) + 1,
    "bounded documents": lambda q, keys: q % (keys // DOCUMENTS) + 1,
    "chunked": lambda q, keys: q % CHUNK + 1,
    "global window": _seen_by_global_window,
}

# Who else computes a recipe's attention, in turns with it: Kiln's other ways to say it, and
# FlexAttention beside the last.
MASKS = ("causal", "window", "prefix")
LOGITS = ("softcap", "alibi", "relative bias")
BUILT_INS = {"causal", "window", "softcap", "alibi"}


def variant(short=False):
    """Masks as expressions beside the built-in ones; biases and documents beside plain causal;
    a window at the end of a long row; FlexAttention's callables and BlockMasks."""
    lengths = (4096,) if short else (4096, 8192, 16384, 32768)
    batches = [_masks(length, short) for length in lengths]
    batches.append(_logits((4, 4096, 4096, 16, 16, 128), "D128 causal 4k"))
    if not short:
        # Shapes that nothing was tuned on.
        batches.append(_logits((2, 5000, 5000, 32, 8, 128), "D128 causal 5000, 32/8"))
        batches.append(_logits((4, 4096, 4096, 64, 8, 64), "D64 causal 4k, 64/8"))
        batches.append(_sparse((1, 16384, 16384, 16, 16, 128), "sparse masks, 16k"))
        batches += [_long_row(queries) for queries in (1, 512)]
    return batches


def _masks(length, short):
    shape = (max(1, 16384 // length), length, length, 16, 16, 128)
    group = f"masks D128 {length_label(length)}"
    cells = []
    for recipe in MASKS:
        ways = [BUILT_IN] if recipe in BUILT_INS else []
        ways += [EXPRESSION, CALLABLE] + ([BLOCK_MASK] if length <= 16384 else [])
        for way in ways:
            cells.append(_cell(shape, recipe, way, group))
    return cells


def _logits(shape, group):
    cells = [_cell(shape, "causal", BUILT_IN, group)]
    for recipe in LOGITS:
        ways = [BUILT_IN] if recipe in BUILT_INS else []
        cells += [_cell(shape, recipe, way, group) for way in (*ways, EXPRESSION)]
    cells += [_cell(shape, "documents", way, group) for way in (EXPRESSION, BLOCK_MASK)]
    return [*cells, _cell(shape, "bounded documents", EXPRESSION, group)]


def _sparse(shape, group):
    cells = [_cell(shape, "causal", BUILT_IN, group)]
    cells.append(_cell(shape, "bounded documents", EXPRESSION, group))
    for recipe in ("documents", "chunked", "global window"):
        cells += [_cell(shape, recipe, way, group) for way in (EXPRESSION, BLOCK_MASK)]
    return cells


def _long_row(queries):
    group = f"window {NEAR} of 128k, {queries} queries"
    shape = (1, queries, 131072, 32, 8, 128)
    return [_cell(shape, "near window", way, group) for way in (CUT, BUILT_IN, EXPRESSION)]


def _cell(shape, recipe, way, group):
    names = {"recipe": recipe, "way": way, "group": group, "label": f"{recipe}, {way}"}
    batch, len_q, len_kv, heads, heads_kv, dim = shape
    causal = recipe != "global window"
    return VariantCell(batch, len_q, len_kv, heads, heads_kv, dim, causal, **names)
