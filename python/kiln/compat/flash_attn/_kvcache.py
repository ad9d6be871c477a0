"""flash_attn_with_kvcache: the newest queries of sequences whose keys lie in a cache."""

from __future__ import annotations

from typing import Any

import torch

from ... import jit
from ..._numbers import is_integer
from . import _arguments as take
from . import _varlen

_OP = "flash_attn_with_kvcache"


def _packed_queries(
    q: Any, k_cache: Any, v_cache: Any, counts: Any, bounds: Any, refused: Any, options: Any
) -> Any:
    """Attends with packed queries, beside which Kiln appends nothing."""
    take.refuse(f"{_OP} with cu_seqlens_q", **refused)
    cu_seqlens_q, max_seqlen_q = bounds
    return jit.flash_attention_varlen(
        q,
        k_cache,
        v_cache,
        cu_seqlens_q=cu_seqlens_q,
        max_seqlen_q=q.shape[0] if max_seqlen_q is None else max_seqlen_q,
        max_seqlen_k=_varlen.most_keys(_OP, k_cache, options["block_table"]),
        seqused_k=counts,
        **options,
    )


def _lengths(cache_seqlens: Any, k: Any, batch: int, k_cache: Any, pages: Any) -> Any:
    """Returns cache_seqlens as a tensor; without it, the cache is full. A number is checked here,
    where it is known; tensors are read by the kernel alone."""
    if isinstance(cache_seqlens, torch.Tensor):
        return cache_seqlens
    room = _varlen.most_keys(_OP, k_cache, pages)
    if cache_seqlens is None:
        if k is not None:
            raise ValueError(
                f"{_OP}: cache_seqlens is needed with k and v, which are written behind so many "
                "keys; give a number, or an int32 tensor [batch]"
            )
        return take.lengths(room, batch, k_cache)
    if not is_integer(cache_seqlens):
        if hasattr(cache_seqlens, "shape"):
            return cache_seqlens
        raise TypeError(
            f"{_OP}: cache_seqlens must be a number of keys or an int32 tensor [batch], got "
            f"{cache_seqlens!r}"
        )
    new = 0 if k is None else k.shape[1]
    if not 0 <= cache_seqlens <= room - new:
        raise ValueError(
            f"{_OP}: cache_seqlens must be 0 to {room - new} in a cache that has room for {room} "
            f"keys of a sequence, {new} of which are for k, got {cache_seqlens}"
        )
    return take.lengths(cache_seqlens, batch, k_cache)


def _check_tensors(q: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, starts: Any) -> None:
    """Refuses what is no tensor of PyTorch, or has other dimensions."""
    if (k is None) != (v is None):
        raise ValueError(
            f"{_OP}: k and v, the new keys and values, go together: give both, or none"
        )
    dense = ((4,), "[batch, length, heads, head_dim]")
    cache = ((4,), "[batch or pages, length or page_size, heads, head_dim]")
    forms = {
        "q": (q, *(dense if starts is None else ((3,), "[tokens, heads, head_dim]"))),
        "k_cache": (k_cache, *cache),
        "v_cache": (v_cache, *cache),
    }
    if starts is not None:
        forms["cu_seqlens_q"] = (starts, (1,), "[batch + 1]")
    elif k is not None:
        forms.update(k=(k, *dense), v=(v, *dense))
    take.tensors(_OP, forms)


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Any = (-1, -1),
    softcap: float | None = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: int | None = 0,
    return_softmax_lse: bool = False,
    *,
    page_table: Any = None,
    cu_seqlens_q: Any = None,
    max_seqlen_q: int | None = None,
    s_aux: Any = None,
    learnable_sink: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    out: Any = None,
    return_lse: bool = False,
    qv: Any = None,
    cu_seqlens_k_new: Any = None,
    rotary_seqlens: Any = None,
    attention_chunk: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    scheduler_metadata: Any = None,
    fa_version: int | None = None,
) -> Any:
    """Attention of the newest queries over a KV cache, to which k and v are appended first.

    q                       [batch, len_q, heads, head_dim], or with cu_seqlens_q packed,
                            [tokens, heads, head_dim]; head dims are multiples of 8
    k_cache, v_cache        [batch_cache, len, heads_k, head_dim], or with a block_table pages of
                            any size, [pages, page_size, heads_k, head_dim]
    k, v                    [batch, len_new, heads_k, head_dim]: written into the caches, in place,
                            behind cache_seqlens keys, and then attended to
    rotary_cos, rotary_sin  [max_position, angles]: rotates k and q from position cache_seqlens on;
                            without causal or a window, all queries rotate as its first
    cache_seqlens           a number or [batch], int32: keys in the cache, without k; default: full
    cache_batch_idx         [batch], int32: the entry of the cache that each sequence uses
    cache_leftpad           [batch], int32: how many of the first keys are none
    block_table, page_table
                            [batch, width], int32: the pages of each sequence
    cu_seqlens_q, max_seqlen_q
                            packed queries, as for flash_attn_varlen_func; without k, rotary tables,
                            cache_batch_idx and cache_leftpad
    return_softmax_lse      returns (out, lse), like return_lse; lse is [batch, heads, len_q], of
                            packed queries [heads, tokens]

    The others are as for flash_attn_func. Lengths and pages are read by the kernel alone.

    Raises ValueError for qv, attention_chunk, cu_seqlens_k_new, rotary_seqlens and inputs that
    require grad, and the errors of jit.flash_attention_with_kvcache.
    """
    take.refuse(
        _OP,
        qv=qv,
        cu_seqlens_k_new=cu_seqlens_k_new,
        rotary_seqlens=rotary_seqlens,
        attention_chunk=attention_chunk,
    )
    sinks = take.one_of(_OP, ("s_aux", "learnable_sink"), s_aux, learnable_sink)
    pages = take.one_of(_OP, ("block_table", "page_table"), block_table, page_table)
    _check_tensors(q, k_cache, v_cache, k, v, cu_seqlens_q)
    batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    new = k if cu_seqlens_q is None else None  # beside packed queries, it is refused below
    counts = _lengths(cache_seqlens, new, batch, k_cache, pages)
    descales = (q_descale, k_descale, v_descale)
    options = take.shared(
        out, softmax_scale, causal, window_size, softcap, alibi_slopes, sinks, *descales
    )
    options["block_table"] = pages
    options["num_splits"] = take.splits(num_splits)
    options["return_lse"] = return_softmax_lse or return_lse
    own = dict(rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_batch_idx=cache_batch_idx,
               cache_leftpad=cache_leftpad)  # fmt: skip
    q, k, v = take.unit_stride(q), take.unit_stride(k), take.unit_stride(v)
    if cu_seqlens_q is not None:
        bounds, refused = (cu_seqlens_q, max_seqlen_q), {"k": k, "v": v, **own}
        found = _packed_queries(q, k_cache, v_cache, counts, bounds, refused, options)
    else:
        own.update(k_new=k, v_new=v, rotary_interleaved=rotary_interleaved, cache_seqlens=counts)
        found = jit.flash_attention_with_kvcache(q, k_cache, v_cache, **own, **options)
    return take.results(found, sinks, return_attn_probs=False)
