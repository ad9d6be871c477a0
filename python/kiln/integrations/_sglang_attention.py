"""Attention of SGLang's layers: all that needs none of SGLang's own classes.

_sglang_backend.py makes SGLang's backend of it. A step copies the requests' places in the cache to
a table once, which all layers read; keys and values are read where SGLang's pool keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from .. import jit
from ._plans import Plans

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
CACHES = (torch.float16, torch.bfloat16, *FLOAT8)
LARGEST_TREE = 64  # a query's bits of a tree_mask


@dataclass
class Keys:
    """Where the keys of a step's requests are: a table of pages for each pool that layers have."""

    lengths: torch.Tensor  # int32, the step's own keys among them
    table: torch.Tensor  # int32 [requests, pages]
    window_table: torch.Tensor | None = None  # of the pool of layers with windows


@dataclass
class Step:
    """A step's lengths and places, as the calls of all layers take them."""

    keys: Keys
    # How many queries each request has. 0: they differ, and `starts` and `max_queries` describe
    # them.
    queries: int = 0
    starts: torch.Tensor | None = None  # int32 [requests + 1]
    max_queries: int = 0
    tokens: int | None = None  # of all requests, where the host knows it
    words: torch.Tensor | None = None  # int64 [requests, queries]: a tree of drafts
    encoder: Keys | None = None  # what cross attention reads
    window_slots: torch.Tensor | None = None  # where new keys of layers with windows go
    num_splits: int = 0
    plans: Plans = field(default_factory=Plans)


@dataclass
class Layer:
    """What a call takes from a layer."""

    heads: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    causal: bool = True
    is_encoder: bool = False  # attends to the step's keys alone
    is_cross: bool = False
    has_window_pool: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def pages_of(
    req_to_token: torch.Tensor,
    requests: torch.Tensor,
    page_size: int,
    width: int,
    offsets: torch.Tensor | None = None,
    translate: Any = None,
) -> torch.Tensor:
    """Returns the pages of the first `width` tokens of requests, int32 [requests, pages].

    req_to_token   int32 [rows, tokens]: the slots of each request's tokens
    offsets        the first token of each request, whose pages are then of one token
    translate      from slots to those of another pool
    """
    if offsets is None:
        slots = req_to_token[:, :width:page_size].index_select(0, requests)
    else:
        columns = offsets[:, None] + torch.arange(width, device=offsets.device)
        columns = columns.clamp_(max=req_to_token.shape[1] - 1)
        slots = req_to_token[requests[:, None], columns]
    if translate is not None:
        slots = translate(slots)
    # Slots behind a request's last one are what an earlier request has left, or -1: no key of
    # theirs is read.
    pages = slots if page_size == 1 else slots.div(page_size, rounding_mode="floor")
    return pages.to(torch.int32)


def tree_words(visible: torch.Tensor) -> torch.Tensor:
    """Returns the tree_mask of drafts, int64 [requests, queries], of bools that say which of a
    request's drafts each of them sees, [requests, queries, queries]."""
    bits = torch.arange(visible.shape[-1], device=visible.device)
    return (visible.to(torch.int64) << bits).sum(-1)


def drafts_of_full_mask(mask: torch.Tensor, lengths: torch.Tensor, queries: int) -> torch.Tensor:
    """Returns which drafts see which, [requests, queries, queries], of a mask of all keys.

    mask      bools; for each request one after the other [queries, its length + queries]
    lengths   of the requests, without the drafts
    """
    rows = lengths.to(torch.int64) + queries
    begin = torch.cumsum(rows * queries, 0) - rows * queries
    step = torch.arange(queries, device=mask.device)
    query = begin[:, None] + step * rows[:, None] + lengths[:, None]
    return mask[query[:, :, None] + step]


def refill(
    step: Step,
    keys: Keys,
    drafts: torch.Tensor | None = None,
    window_slots: torch.Tensor | None = None,
) -> None:
    """Copies a batch's numbers to the tensors of a step that a graph refers to."""
    step.keys.lengths.copy_(keys.lengths)
    step.keys.table.copy_(keys.table)
    if step.keys.window_table is not None and keys.window_table is not None:
        step.keys.window_table.copy_(keys.window_table)
    if step.words is not None and drafts is not None:
        step.words.copy_(tree_words(drafts))
    if step.window_slots is not None and window_slots is not None:
        step.window_slots.copy_(window_slots)


def attend(
    layer: Layer,
    step: Step,
    query: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    caches: tuple[torch.Tensor, torch.Tensor] | None,
    out: torch.Tensor,
    **more: Any,
) -> None:
    """Writes a layer's attention to `out` [tokens, heads, value head dim]; rows behind the last
    request's become 0 where the host knows how many those are.

    key, value   [tokens, KV heads, head dim]: what an encoder attends to
    caches       [pages, page size, KV heads, head dim]: what is read where no key is given
    more         options of this call: sinks, and the scales of a quantised cache
    """
    tokens = step.tokens
    if tokens is not None and tokens < out.shape[0]:
        out[tokens:].zero_()
        query, out = query[:tokens], out[:tokens]
    options = {**layer.options, **more, "num_splits": step.num_splits}
    if key is not None:
        assert value is not None
        jit.flash_attention_varlen(
            query, key[: query.shape[0]], value[: query.shape[0]], cu_seqlens_q=step.starts,
            cu_seqlens_k=step.starts, max_seqlen_q=step.max_queries, max_seqlen_k=step.max_queries,
            out=out, **options,
        )  # fmt: skip
        return
    assert caches is not None
    places = step.encoder if layer.is_cross else step.keys
    assert places is not None
    table = places.window_table if layer.has_window_pool else places.table
    if step.words is not None and not layer.is_cross:
        options["tree_mask"] = step.words
    else:
        options["causal"] = layer.causal
    if step.queries == 0:
        assert table is not None
        options.update(
            cu_seqlens_q=step.starts, seqused_k=places.lengths, block_table=table,
            max_seqlen_q=step.max_queries, max_seqlen_k=table.shape[1] * caches[0].shape[1],
        )  # fmt: skip
        plan = step.plans.plan(layer, query, *caches, options)
        jit.flash_attention_varlen(query, *caches, out=out, plan=plan, **options)
        return
    together = (-1, step.queries)
    query, out = query.unflatten(0, together), out.unflatten(0, together)
    options.update(cache_seqlens=places.lengths, block_table=table)
    plan = step.plans.plan(layer, query, *caches, options)
    jit.flash_attention_with_kvcache(query, *caches, out=out, plan=plan, **options)
