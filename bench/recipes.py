"""Masks and biases, each said to Kiln as a variant and to PyTorch as FlexAttention's callables.

The callables are the truth, too: applied to tensors of indices they give a chunk of the scores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from kiln import variants
from kiln.jit import Variant
from variant_cells import CHUNK, DOCUMENTS, GLOBALS, NEAR, PREFIX, WINDOW

CAP = 30.0
REACH = 128  # distances with a bias of their own

CAUSAL = Variant("causal", mask="kv <= q")
BEFORE = Variant("window", params={"left": "i32"}, mask="kv <= q && q - kv <= left")
# CUDA has no faster tanh; docs/variants.md says what this one costs.
SOFTCAP = variants.softcap


@dataclasses.dataclass(frozen=True)
class Recipe:
    """`keywords` go with the variant, `built_in` are the keywords that do the same without one."""

    variant: Any
    mask_mod: Callable[..., Any]
    score_mod: Callable[..., Any] | None = None
    keywords: dict[str, Any] = dataclasses.field(default_factory=lambda: {"causal": True})
    built_in: dict[str, Any] | None = None


def recipe(cell):
    """The recipe of a cell, with tensors of its shape."""
    return RECIPES[cell.recipe](cell, cell.len_kv - cell.len_q)


def _causal(shift):
    return lambda b, h, row, key: key <= row + shift


def _plain(cell, shift):
    return Recipe(CAUSAL(), _causal(shift), keywords={}, built_in={"causal": True})


def _window(left):
    def of(cell, shift):
        def mask(b, h, row, key):
            return (key <= row + shift) & (row + shift - key <= left)

        return Recipe(
            BEFORE(left=left), mask, keywords={}, built_in={"causal": True, "window": (left, 0)}
        )

    return of


def _prefix(cell, shift):
    prefix = cell.len_kv // PREFIX

    def mask(b, h, row, key):
        return (key <= row + shift) | (key < prefix)

    return Recipe(variants.prefix_lm(prefix), mask, keywords={})


def _softcap(cell, shift):
    def score(s, b, h, row, key):
        return CAP * torch.tanh(s / CAP)

    return Recipe(SOFTCAP(CAP), _causal(shift), score, built_in={"causal": True, "softcap": CAP})


def _alibi(cell, shift):
    slopes = torch.exp2(-8 * torch.arange(1, cell.heads + 1, device="cuda") / cell.heads).float()

    def score(s, b, h, row, key):
        return s - slopes[h] * (row + shift - key).abs()

    return Recipe(
        variants.alibi(slopes), _causal(shift), score,
        built_in={"causal": True, "alibi_slopes": slopes},
    )  # fmt: skip


def _relative(cell, shift):
    generator = torch.Generator(device="cuda").manual_seed(2)
    bias = torch.randn(cell.heads, 2 * REACH + 1, device="cuda", generator=generator)

    def score(s, b, h, row, key):
        place = torch.clamp(key - row - shift + REACH, 0, 2 * REACH)
        return s + bias[h, place]

    return Recipe(variants.relative_bias(bias), _causal(shift), score)


def _document_of_each(cell):
    return (torch.arange(cell.len_kv, device="cuda") // (cell.len_kv // DOCUMENTS)).int()


def _documents(cell, shift):
    ids = _document_of_each(cell)

    def mask(b, h, row, key):
        return (key <= row + shift) & (ids[row + shift] == ids[key])

    return Recipe(variants.documents(ids.expand(cell.batch, -1)), mask)


def _bounded_documents(cell, shift):
    plain = _documents(cell, shift)
    ids = _document_of_each(cell).expand(cell.batch, -1)
    variant = variants.documents(ids, variants.document_bounds(ids))
    return dataclasses.replace(plain, variant=variant)


def _chunked(cell, shift):
    def mask(b, h, row, key):
        return (key <= row + shift) & ((row + shift) // CHUNK == key // CHUNK)

    return Recipe(variants.chunked(CHUNK), mask, keywords={})


def _global_window(cell, shift):
    def mask(b, h, row, key):
        q = row + shift
        return (key < GLOBALS) | (q < GLOBALS) | ((q - key).abs() <= WINDOW)

    return Recipe(variants.global_window(GLOBALS, WINDOW), mask, keywords={})


RECIPES = {
    "causal": _plain,
    "window": _window(WINDOW),
    "near window": _window(NEAR),
    "prefix": _prefix,
    "softcap": _softcap,
    "alibi": _alibi,
    "relative bias": _relative,
    "documents": _documents,
    "bounded documents": _bounded_documents,
    "chunked": _chunked,
    "global window": _global_window,
}
