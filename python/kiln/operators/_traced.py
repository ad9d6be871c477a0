# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for kiln.jit's functions where PyTorch traces: these take the same arguments
and call the operators."""

from __future__ import annotations

from typing import Any

import torch

from . import flash_attention as _flash_attention
from . import flash_attention_varlen as _flash_attention_varlen
from . import flash_attention_with_kvcache as _flash_attention_with_kvcache
from . import layer_norm as _layer_norm
from . import rms_norm as _rms_norm
from ._values import check, dtype_of, numbers, refuse, tile_numbers

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
    layout: Any = "bshd",
    out: Any = None,
    lse: Any = None,
    return_lse: Any = False,
) -> Any:
    """kiln.jit.flash_attention as operators of PyTorch."""
    refuse("flash_attention", variant=variant)
    tensors = {
        "q": q,
        "k": k,
        "v": v,
        "attn_mask": attn_mask,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "out": out,
        "lse": lse,
    }
    check("flash_attention", tensors)
    options = {
        "causal": causal,
        "top_left": top_left,
        "window": numbers("flash_attention", window),
        "softcap": softcap,
        "scale": scale,
        "attn_mask": attn_mask,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "layout": layout,
    }
    if out is None and lse is None:
        if return_lse:
            return _OPS.flash_attention_lse(q, k, v, **options)
        return _OPS.flash_attention(q, k, v, **options)
    if out is None:
        out = _flash_attention.out(q, k, v, **options)
    if lse is None and return_lse:
        lse = _flash_attention.lse(q, k, v, **options)
    _OPS.flash_attention_out(q, k, v, **options, out=out, lse=lse)
    return (out, lse) if return_lse else out


def flash_attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    *,
    cu_seqlens_q: Any,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    cu_seqlens_k: Any = None,
    seqused_k: Any = None,
    block_table: Any = None,
    causal: Any = False,
    window: Any = (-1, -1),
    softcap: Any = 0.0,
    scale: Any = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    variant: Any = None,
    num_splits: Any = 0,
    out: Any = None,
    lse: Any = None,
    return_lse: Any = False,
) -> Any:
    """kiln.jit.flash_attention_varlen as operators of PyTorch."""
    refuse("flash_attention_varlen", variant=variant)
    tensors = {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_k": seqused_k,
        "block_table": block_table,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "out": out,
        "lse": lse,
    }
    check("flash_attention_varlen", tensors)
    options = {
        "cu_seqlens_q": cu_seqlens_q,
        "max_seqlen_q": max_seqlen_q,
        "max_seqlen_k": max_seqlen_k,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_k": seqused_k,
        "block_table": block_table,
        "causal": causal,
        "window": numbers("flash_attention_varlen", window),
        "softcap": softcap,
        "scale": scale,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "num_splits": num_splits,
    }
    if out is None and lse is None:
        if return_lse:
            return _OPS.flash_attention_varlen_lse(q, k, v, **options)
        return _OPS.flash_attention_varlen(q, k, v, **options)
    if out is None:
        out = _flash_attention_varlen.out(q, k, v, **options)
    if lse is None and return_lse:
        lse = _flash_attention_varlen.lse(q, k, v, **options)
    _OPS.flash_attention_varlen_out(q, k, v, **options, out=out, lse=lse)
    return (out, lse) if return_lse else out


def flash_attention_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    *,
    cache_seqlens: Any,
    block_table: Any = None,
    causal: Any = False,
    window: Any = (-1, -1),
    softcap: Any = 0.0,
    scale: Any = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    variant: Any = None,
    num_splits: Any = 0,
    out: Any = None,
    lse: Any = None,
    return_lse: Any = False,
) -> Any:
    """kiln.jit.flash_attention_with_kvcache as operators of PyTorch."""
    refuse("flash_attention_with_kvcache", variant=variant)
    tensors = {
        "q": q,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "cache_seqlens": cache_seqlens,
        "block_table": block_table,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "out": out,
        "lse": lse,
    }
    check("flash_attention_with_kvcache", tensors)
    options = {
        "cache_seqlens": cache_seqlens,
        "block_table": block_table,
        "causal": causal,
        "window": numbers("flash_attention_with_kvcache", window),
        "softcap": softcap,
        "scale": scale,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "num_splits": num_splits,
    }
    if out is None and lse is None:
        if return_lse:
            return _OPS.flash_attention_with_kvcache_lse(q, k_cache, v_cache, **options)
        return _OPS.flash_attention_with_kvcache(q, k_cache, v_cache, **options)
    if out is None:
        out = _flash_attention_with_kvcache.out(q, k_cache, v_cache, **options)
    if lse is None and return_lse:
        lse = _flash_attention_with_kvcache.lse(q, k_cache, v_cache, **options)
    _OPS.flash_attention_with_kvcache_out(q, k_cache, v_cache, **options, out=out, lse=lse)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: Any = 0.0,
    is_causal: Any = False,
    *,
    scale: Any = None,
    enable_gqa: Any = False,
) -> Any:
    """kiln.jit.scaled_dot_product_attention as operators of PyTorch."""
    tensors = {
        "query": query,
        "key": key,
        "value": value,
        "attn_mask": attn_mask,
    }
    check("scaled_dot_product_attention", tensors)
    options = {
        "scale": scale,
        "enable_gqa": enable_gqa,
    }
    return _OPS.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, **options
    )


def gemm(
    a: Any,
    b: Any,
    *,
    trans_a: Any = False,
    trans_b: Any = False,
    bias: Any = None,
    activation: Any = None,
    gate: Any = None,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    alpha: Any = 1.0,
    out: Any = None,
    out_dtype: Any = None,
    precision: Any = None,
    accumulator: Any = "float32",
    epilogue: Any = None,
    config: Any = None,
) -> Any:
    """kiln.jit.gemm as operators of PyTorch."""
    tensors = {
        "a": a,
        "b": b,
        "bias": bias,
        "residual": residual,
        "scale_a": scale_a,
        "scale_b": scale_b,
        "out": out,
    }
    check("gemm", tensors)
    options = {
        "trans_a": trans_a,
        "trans_b": trans_b,
        "bias": bias,
        "activation": activation,
        "gate": gate,
        "residual": residual,
        "scale_a": scale_a,
        "scale_b": scale_b,
        "alpha": alpha,
        "out_dtype": None if out_dtype is None else dtype_of("gemm", out_dtype),
        "precision": precision,
        "accumulator": accumulator,
        "epilogue": epilogue,
        "config": None if config is None else tile_numbers("gemm", config),
    }
    if out is None:
        return _OPS.gemm(a, b, **options)
    _OPS.gemm_out(a, b, **options, out=out)
    return out


def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    eps: Any = 1e-06,
    weight_offset: Any = 0.0,
    residual: Any = None,
    residual_out: Any = None,
    activation: Any = None,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """kiln.jit.rms_norm as operators of PyTorch."""
    tensors = {
        "x": x,
        "weight": weight,
        "residual": residual,
        "residual_out": residual_out,
        "out": out,
    }
    check("rms_norm", tensors)
    options = {
        "eps": eps,
        "weight_offset": weight_offset,
        "residual": residual,
        "activation": activation,
        "out_dtype": None if out_dtype is None else dtype_of("rms_norm", out_dtype),
    }
    if residual_out is None and out is None:
        return _OPS.rms_norm(x, weight, **options)
    if out is None:
        out = _rms_norm.out(x, weight, **options)
    _OPS.rms_norm_out(x, weight, **options, residual_out=residual_out, out=out)
    return out


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: Any = 1e-05,
    weight_offset: Any = 0.0,
    residual: Any = None,
    residual_out: Any = None,
    activation: Any = None,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """kiln.jit.layer_norm as operators of PyTorch."""
    tensors = {
        "x": x,
        "weight": weight,
        "bias": bias,
        "residual": residual,
        "residual_out": residual_out,
        "out": out,
    }
    check("layer_norm", tensors)
    options = {
        "eps": eps,
        "weight_offset": weight_offset,
        "residual": residual,
        "activation": activation,
        "out_dtype": None if out_dtype is None else dtype_of("layer_norm", out_dtype),
    }
    if residual_out is None and out is None:
        return _OPS.layer_norm(x, weight, bias, **options)
    if out is None:
        out = _layer_norm.out(x, weight, bias, **options)
    _OPS.layer_norm_out(x, weight, bias, **options, residual_out=residual_out, out=out)
    return out
