# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.flash_attention where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag, number
from .. import flash_attention as _flash_attention
from .._values import check, window_numbers, write_to
from .._variants import call as call_with_variant

_OP = "flash_attention"
_OPS = torch.ops.kiln


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: Any = False,
    top_left: Any = False,
    window: Any = (-1, -1),
    softcap: Any = 0.0,
    scale: Any = None,
    attn_mask: Any = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    variant: Any = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    layout: Any = "bshd",
    out: Any = None,
    lse: Any = None,
    return_lse: Any = False,
) -> Any:
    """kiln.jit.flash_attention as operators of PyTorch."""
    given = {
        "q": q,
        "k": k,
        "v": v,
        "attn_mask": attn_mask,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "q_scale": q_scale,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "out": out,
        "lse": lse,
    }
    check(_OP, given)
    flag(_OP, "return_lse", return_lse)
    options = {
        "causal": flag(_OP, "causal", causal),
        "top_left": flag(_OP, "top_left", top_left),
        "window": window_numbers(_OP, window),
        "softcap": number(_OP, "softcap", softcap),
        "scale": None if scale is None else number(_OP, "scale", scale),
        "attn_mask": attn_mask,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "q_scale": q_scale,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "layout": layout,
    }
    if variant is not None:
        first = (q, k, v)
        return call_with_variant(_OP, first, variant, options, out, lse, return_lse)
    if out is None and lse is None:
        if return_lse:
            return _OPS.flash_attention_lse(q, k, v, **options)
        return _OPS.flash_attention(q, k, v, **options)
    if out is None:
        out = _flash_attention.out(q, k, v, **options)
    if lse is None and return_lse:
        lse = _flash_attention.lse(q, k, v, **options)
    write_to(_OPS.flash_attention_out, q, k, v, **options, out=out, lse=lse)
    return (out, lse) if return_lse else out
