"""The attention function of kiln.integrations.transformers, which each layer of a model calls.

What runs between a layer's tensors and Kiln runs in every layer of every step, so it makes views
only, and converts nothing that has the right form.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from .. import jit
from . import _transformers_masks as masks

_WHOLE = (-1, -1)


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    cache: Any = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: Any = None,
    output_attentions: bool | None = False,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Returns (attention's result [batch, queries, heads, v's head dim], None).

    query           [batch, heads, queries, head dim], float16 or bfloat16
    key, value      [batch, heads, keys, head dim], all that a cache has, the newest last
    attention_mask  a mask of make_mask; or one of elements, bool or additive, [batch or 1, heads or
                    1, queries, keys], beside which is_causal and sliding_window say nothing; or
                    None
    sliding_window  the keys that a causal query sees, itself included; the others see as many on
                    each side, themselves included
    s_aux           [heads]: the logits of sinks
    is_causal       default module.is_causal; aligned to the last key
    position_bias   [batch or 1, heads, queries, keys]: is added to the logits
    cache           the paged cache of continuous batching, whose part in options it takes itself
    cu_seq_lens_q   int32 [sequences + 1]: the offsets of sequences that are packed into one; with
                    max_length_q and max_length_k among options, which bound their lengths
    """
    if dropout:
        raise ValueError(
            f"kiln.integrations.transformers: dropout must be 0, got {dropout}, because Kiln "
            "computes the forward pass of inference; call model.eval() first, or set "
            "attention_dropout=0"
        )
    if output_attentions:
        raise ValueError(
            "kiln.integrations.transformers: output_attentions cannot be served, because Kiln "
            'keeps no attention weights; load the model with attn_implementation="eager" for them'
        )
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    shared: dict[str, Any] = {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux}
    if cu_seq_lens_q is not None:
        shared.update(causal=causal, window=_window(sliding_window, causal))
        lengths = cu_seq_lens_q, cu_seq_lens_k, shared, options
        return _packed(module, query, key, value, cache, *lengths), None
    if attention_mask is not None and masks.is_encoded(attention_mask):
        if position_bias is None:
            return _encoded(module, query, key, value, attention_mask, sliding_window, shared), None
        attention_mask = _dense(module, query, key, attention_mask, sliding_window)
    if attention_mask is None:
        shared.update(causal=causal, window=_window(sliding_window, causal))
    if position_bias is not None:
        attention_mask = _biased(position_bias, attention_mask)
    out = jit.flash_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=attention_mask,
        **shared,
    )
    return out, None


def _window(size: int | None, causal: bool) -> tuple[int, int]:
    """jit.flash_attention's window for a layer's."""
    if not size:
        return _WHOLE
    return (size - 1, 0 if causal else size - 1)


def _layer_window(module: Any, size: int | None) -> tuple[int, int]:
    """The causal window of a layer whose mask has one. Some models do not pass it on."""
    return ((module.config.sliding_window if size is None else size) - 1, 0)


def _encoded(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    size: int | None,
    shared: dict[str, Any],
) -> torch.Tensor:
    """Attention with a mask of make_mask."""
    rows, kind, keys, _ = mask.shape
    shared["causal"] = kind != masks.FULL and kind != masks.FULL_WINDOW
    if kind in (masks.WINDOW, masks.PACKED_WINDOW):
        shared["window"] = _layer_window(module, size)
    q, k, v = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    if rows == 0:
        if kind == masks.FULL_WINDOW:
            shared["window"] = (keys, keys)
        elif keys < k.shape[1]:
            k, v = k[:, :keys], v[:, :keys]
        return jit.flash_attention(q, k, v, **shared)
    if kind in masks.PACKED.values():
        starts, most = mask[0, 0, 0], q.shape[1]
        return _varlen(q, k, v, starts, starts, most, most, shared)
    return jit.flash_attention_with_kvcache(
        q,
        k,
        v,
        cache_seqlens=mask[0, 0, 0],
        cache_leftpad=mask[1, 0, 0] if rows == 2 else None,
        **shared,
    )


def _varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    starts_q: torch.Tensor,
    starts_k: torch.Tensor,
    most_q: int,
    most_k: int,
    shared: dict[str, Any],
) -> torch.Tensor:
    """Attention of the sequences in [batch, tokens, heads, head dim], as one row of tokens."""
    out = jit.flash_attention_varlen(
        q.flatten(0, 1),
        k.flatten(0, 1),
        v.flatten(0, 1),
        cu_seqlens_q=starts_q.to(torch.int32),
        cu_seqlens_k=starts_k.to(torch.int32),
        max_seqlen_q=most_q,
        max_seqlen_k=most_k,
        **shared,
    )
    return out.unflatten(0, q.shape[:2])


def _packed(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: Any,
    starts_q: torch.Tensor,
    starts_k: Any,
    shared: dict[str, Any],
    options: dict[str, Any],
) -> torch.Tensor:
    """Attention of packed sequences, whose earlier keys may lie in a paged cache."""
    k, v = key.transpose(1, 2), value.transpose(1, 2)
    if cache is not None:
        k, v, starts_k = _paged_keys(module, key, value, cache, starts_k, options)
    q = query.transpose(1, 2)
    most_q, most_k = _bound(options, "q", q), _bound(options, "k", k)
    starts_k = starts_q if starts_k is None else starts_k
    return _varlen(q, k, v, starts_q, starts_k, most_q, most_k, shared)


def _bound(options: dict[str, Any], which: str, tokens: torch.Tensor) -> int:
    """The most queries or keys of a sequence: what the host was told, or else all tokens."""
    for name in (f"max_length_{which}", f"max_seqlen_{which}"):  # the latter in older versions
        if isinstance(options.get(name), int):
            return int(options[name])
    return tokens.shape[0] * tokens.shape[1]


def _paged_keys(
    module: Any,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: Any,
    starts: Any,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Adds a layer's keys and values to the paged cache; returns all that its sequences have,
    [1, tokens, heads, head dim], and their offsets."""
    new = {"key_states": key, "value_states": value, "layer_idx": module.layer_idx}
    cache_type: Any = type(cache)
    if _update_takes_kwargs(cache_type):
        # The cache of newer versions chooses the layer's offsets and bounds itself.
        options["cu_seq_lens_k"] = starts
        k, v = cache.update(**new, kwargs=options)
        return k.transpose(1, 2), v.transpose(1, 2), options["cu_seq_lens_k"]
    kind = "sliding_attention" if getattr(module, "sliding_window", None) else "full_attention"
    k, v = cache.update(**new, read_index=options["read_index"], write_index=options["write_index"])
    if isinstance(starts, dict):
        options["max_seqlen_k"] = options["max_seqlen_k"][kind]
        starts = starts[kind]
    return k[None], v[None], starts


@functools.cache
def _update_takes_kwargs(cache_type: Any) -> bool:
    """Whether update() takes a call's options as one dict. What inspect sees is the method itself,
    not the wrapper of a decorator around it."""
    return "kwargs" in inspect.signature(cache_type.update).parameters


def _dense(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor,
    size: int | None,
) -> torch.Tensor:
    """The bool mask [batch, 1, queries, keys] that a mask of make_mask stands for."""
    rows, kind, keys, _ = mask.shape
    if kind in masks.PACKED.values():
        raise ValueError(
            "kiln.integrations.transformers: position_bias cannot be given beside position_ids of "
            "packed sequences; pass an attention_mask, or one sequence in each row"
        )
    columns = torch.arange(key.shape[2], device=key.device)[None, None, None]
    length: Any = mask[0, 0, 0][:, None, None, None] if rows else keys
    if kind == masks.FULL_WINDOW:
        length = key.shape[2]
    seen = columns < length
    if rows == 2:
        seen = seen & (columns >= mask[1, 0, 0][:, None, None, None])
    # The last query is the one of the last key.
    ahead = torch.arange(query.shape[2], device=key.device)[:, None] - query.shape[2]
    distance = columns - (ahead + length)
    if kind == masks.FULL_WINDOW:
        return seen & (distance.abs() <= keys)
    if kind == masks.WINDOW:
        seen = seen & (distance >= -_layer_window(module, size)[0])
    return seen if kind == masks.FULL else seen & (distance <= 0)


def _biased(bias: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The additive mask of a bias and a mask."""
    if mask is None:
        return bias
    return bias.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else bias + mask
