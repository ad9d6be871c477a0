"""flash_attn_func: sequences of one length."""

from __future__ import annotations

from typing import Any

from ... import jit
from . import _arguments as take

_OP = "flash_attn_func"


def attend(
    q: Any,
    k: Any,
    v: Any,
    *,
    num_splits: int | None = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    seqused_k: Any = None,
    **options: Any,
) -> Any:
    """Calls jit.flash_attention, or jit.flash_attention_with_kvcache for what that alone has: a
    fixed order of sums, 8-bit keys and lengths."""
    scales = {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}
    if take.splits(num_splits) == 0 and all(x is None for x in (seqused_k, *scales.values())):
        return jit.flash_attention(q, k, v, **options)
    if seqused_k is None:
        seqused_k = take.lengths(k.shape[1], q.shape[0], k)
    return jit.flash_attention_with_kvcache(
        q, k, v, cache_seqlens=seqused_k, num_splits=take.splits(num_splits), **scales, **options
    )


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Any = (-1, -1),
    softcap: float | None = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    s_aux: Any = None,
    learnable_sink: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    out: Any = None,
    return_softmax_lse: bool = False,
    return_lse: bool = False,
    num_splits: int | None = 0,
    qv: Any = None,
    attention_chunk: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    fa_version: int | None = None,
) -> Any:
    """Attention over sequences of one length, softmax(softmax_scale * q k^T) v.

    q                     [batch, len_q, heads, head_dim], float16 or bfloat16, or float8_e4m3fn or
                          float8_e5m2 as k and v, with head dims that are multiples of 16 up to 256:
                          the result is then bfloat16
    k, v                  [batch, len_k, heads_k, head_dim], heads_k divides heads; v may have
                          another head dim. Head dims that are no multiple of 8 are padded in copies
    softmax_scale         default 1 / sqrt(head_dim)
    causal                query i sees keys up to i + len_k - len_q (aligned bottom-right)
    window_size           (left, right): keys before and after that one; -1 or None = open
    softcap               cap * tanh(logit / cap) after the scale; 0 or None = none
    alibi_slopes          [heads] or [batch, heads], float32: logit -= slope * |q - k|, of positions
    s_aux, learnable_sink
                          [heads]: one more logit in each softmax denominator, which is not scaled
    k_descale, v_descale  what elements of 8-bit k and v are multiples of: [batch, heads_k] float32
    q_descale             likewise of q, which multiplies logits
    out                   the result is written to it
    num_splits            1: the sums of a sequence have one order, whatever else is in the batch
    return_softmax_lse    returns (out, lse), and so does return_lse
    return_attn_probs     returns (out, lse, None)

    lse is float32 [batch, heads, len_q], the natural logarithm of the softmax denominator, sinks
    included. A row that sees no key gives 0 and -inf, as in flash-attn 3 (flash-attn 2: +inf).
    deterministic, pack_gqa, sm_margin and fa_version change nothing. There is no backward pass.

    Raises ValueError for dropout_p, qv, attention_chunk and inputs that require grad, and the
    errors of jit.flash_attention.
    """
    take.refuse(_OP, dropout_p=dropout_p, qv=qv, attention_chunk=attention_chunk)
    form = ((4,), "[batch, length, heads, head_dim]")
    take.tensors(_OP, {"q": (q, *form), "k": (k, *form), "v": (v, *form)})
    sinks = take.one_of(_OP, ("s_aux", "learnable_sink"), s_aux, learnable_sink)
    descales = (q_descale, k_descale, v_descale)
    options = take.shared(
        out, softmax_scale, causal, window_size, softcap, alibi_slopes, sinks, *descales
    )
    options["num_splits"] = num_splits
    lse = take.wants_lse(_OP, return_attn_probs, return_softmax_lse or return_lse)
    found = take.with_any_heads(_OP, attend, q, k, v, return_lse=lse, **options)
    return take.results(found, sinks, return_attn_probs)
