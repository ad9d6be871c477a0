"""The functions of flash-attn whose tensors lie in one: their views go to the others."""

from __future__ import annotations

from typing import Any

from . import _arguments as take
from ._dense import flash_attn_func
from ._varlen import flash_attn_varlen_func


def _views(op: str, name: str, packed: Any, count: int, rows: str) -> tuple[Any, ...]:
    """Returns the tensors that lie in one, of which `rows` are the first dimensions."""
    form = f"[{rows}, {count}, heads, head_dim]"
    take.tensors(op, {name: (packed, (form.count(",") + 1,), form)})
    if packed.shape[-3] != count:
        raise ValueError(f"{op}: {name} must have shape {form}, got {list(packed.shape)}")
    return tuple(packed.unbind(-3))


def flash_attn_qkvpacked_func(qkv: Any, *rest: Any, **named: Any) -> Any:
    """flash_attn_func of qkv, [batch, len, 3, heads, head_dim].

    What follows it there follows it here: dropout_p, softmax_scale, causal, window_size, ..
    """
    views = _views("flash_attn_qkvpacked_func", "qkv", qkv, 3, "batch, length")
    return flash_attn_func(*views, *rest, **named)


def flash_attn_kvpacked_func(q: Any, kv: Any, *rest: Any, **named: Any) -> Any:
    """flash_attn_func of q and kv, [batch, len_k, 2, heads_k, head_dim].

    What follows it there follows it here: dropout_p, softmax_scale, causal, window_size, ..
    """
    views = _views("flash_attn_kvpacked_func", "kv", kv, 2, "batch, length")
    return flash_attn_func(q, *views, *rest, **named)


def flash_attn_varlen_qkvpacked_func(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, *rest: Any, **named: Any
) -> Any:
    """flash_attn_varlen_func of qkv, [tokens, 3, heads, head_dim].

    Queries and keys have the same lengths. Then follow dropout_p, softmax_scale, causal, ..
    """
    views = _views("flash_attn_varlen_qkvpacked_func", "qkv", qkv, 3, "tokens")
    given: list[Any] = [*views, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen]
    return flash_attn_varlen_func(*given, *rest, **named)


def flash_attn_varlen_kvpacked_func(
    q: Any, kv: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, *rest: Any, **named: Any
) -> Any:
    """flash_attn_varlen_func of q and kv, [tokens_k, 2, heads_k, head_dim].

    What follows them there follows them here: max_seqlen_q, max_seqlen_k, dropout_p, ..
    """
    views = _views("flash_attn_varlen_kvpacked_func", "kv", kv, 2, "tokens")
    given: list[Any] = [q, *views, cu_seqlens_q, cu_seqlens_k]
    return flash_attn_varlen_func(*given, *rest, **named)
