"""The operations as PyTorch operators, torch.ops.kiln.*: for torch.compile, torch.export and fake
tensors.

Importing this module imports torch and registers them. Eager calls of kiln.jit never come here:
they are one C entry. The functions below stand for kiln.jit's where PyTorch traces: they take the
same arguments and call the operators.

The kernels for CUDA and the CPU are C++ functions, which PyTorch calls through its stable
C interface and without the GIL; NATIVE names the dispatch keys that have them. Other backends have
kernels in Python, kiln.jit's C entries again, and so has every backend where PyTorch is older than
2.11 or lacks that interface.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _core

_LIBRARY = torch.library.Library("kiln", "DEF")

_ATTENTION = (
    "Tensor q, Tensor k, Tensor v, *, bool causal=False, SymInt[] window=[-1, -1], "
    "float softcap=0.0, float? scale=None, Tensor? sinks=None, Tensor? alibi_slopes=None, "
    "str layout='bshd'"
)
_GEMM = (
    "Tensor a, Tensor b, *, bool trans_a=False, bool trans_b=False, Tensor? bias=None, "
    "str? activation=None, str? gate=None, Tensor? residual=None, Tensor? scale_a=None, "
    "Tensor? scale_b=None, float alpha=1.0, str? precision=None, str accumulator='float32', "
    "str? epilogue=None, int[]? config=None"
)
_SDPA = (
    "Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
    "bool is_causal=False, *, float? scale=None, bool enable_gqa=False"
)
_TILE_KEYS = ("block_m", "block_n", "block_k", "stages", "cluster", "splits")


def _check(op: str, tensors: dict[str, Any]) -> None:
    # As the C entries do; where PyTorch traces, they see the tensors only when it is too late.
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"{op}: {name} must be a torch.Tensor beside tensors that PyTorch traces with, "
                f"got {type(tensor).__name__}; pass tensors of PyTorch alone"
            )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{op}: {name} requires grad, and Kiln computes the forward pass only; call it "
                "under torch.no_grad() or pass tensor.detach()"
            )


def _dtype_of(name: str) -> torch.dtype:
    names = {"f16": "float16", "half": "float16", "bf16": "bfloat16", "f32": "float32"}
    dtype = getattr(torch, names.get(name, name.replace("torch.", "")), None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            'gemm: out_dtype must be a dtype or its name, such as "float16", "bfloat16" or '
            f'"float32", got {name!r}'
        )
    return dtype


def _attention_lse(*args: Any, **kwargs: Any) -> Any:
    return _core.flash_attention(*args, **kwargs, return_lse=True)


def _attention_out(*args: Any, out: Any, lse: Any = None, **kwargs: Any) -> None:
    _core.flash_attention(*args, **kwargs, out=out, lse=lse)


def _gemm(*args: Any, config: Any = None, **kwargs: Any) -> Any:
    return _core.gemm(*args, **kwargs, config=None if config is None else tuple(config))


def _gemm_out(*args: Any, out: Any, **kwargs: Any) -> None:
    _gemm(*args, **kwargs, out=out)


# ------------------------------------------------------------- shapes and dtypes, without memory


def _fake_attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    _check("flash_attention", {"q": q, "k": k, "v": v})
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


def _fake_attention_lse(q: Any, k: Any, v: Any, *, layout: str = "bshd", **options: Any) -> Any:
    batch, one, other, _ = q.shape
    heads_and_rows = (other, one) if layout == "bshd" else (one, other)
    lse = q.new_empty((batch, *heads_and_rows), dtype=torch.float32)
    return _fake_attention(q, k, v), lse


def _fake_sdpa(
    query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **options: Any
) -> Any:
    tensors = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    _check("scaled_dot_product_attention", tensors)
    enable_gqa = options.get("enable_gqa", False)
    kept = 3 if enable_gqa else 2  # dimensions that do not broadcast
    leads = [tensor.shape[:-kept] for tensor in (query, key, value)]
    lead = torch.broadcast_shapes(*leads)
    return query.new_empty((*lead, *query.shape[-kept:-1], value.shape[-1]))


def _fake_gemm(
    a: Any,
    b: Any,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    tensors = {name: options.get(name) for name in ("bias", "residual", "scale_a", "scale_b")}
    _check("gemm", {"a": a, "b": b, **tensors})
    m = a.shape[-1 if trans_a else -2]
    n = b.shape[-2 if trans_b else -1]
    if activation in ("swiglu", "geglu", "geglu_tanh"):
        n = n // 2
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    eight_bits = a.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
    own = torch.bfloat16 if eight_bits else a.dtype
    return a.new_empty((*lead, m, n), dtype=own if out_dtype is None else out_dtype)


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Of an operator that writes to its arguments."""


# Name, schema, kernel in Python, fake kernel.
_OPERATORS = (
    ("flash_attention", f"({_ATTENTION}) -> Tensor", _core.flash_attention, _fake_attention),
    (
        "flash_attention_lse",
        f"({_ATTENTION}) -> (Tensor, Tensor)",
        _attention_lse,
        _fake_attention_lse,
    ),
    (
        "flash_attention_out",
        f"({_ATTENTION}, Tensor(a!) out, Tensor(b!)? lse=None) -> ()",
        _attention_out,
        _nothing,
    ),
    (
        "scaled_dot_product_attention",
        f"({_SDPA}) -> Tensor",
        _core.scaled_dot_product_attention,
        _fake_sdpa,
    ),
    ("gemm", f"({_GEMM}, ScalarType? out_dtype=None) -> Tensor", _gemm, _fake_gemm),
    ("gemm_out", f"({_GEMM}, Tensor(a!) out) -> ()", _gemm_out, _nothing),
)


def register(library: Any, native: str = "libtorch_cpu.so") -> tuple[str, ...]:
    """Defines the operators in a library, with C++ kernels where the loaded libtorch takes them;
    returns the dispatch keys that these stand under."""
    for name, schema, kernel, fake in _OPERATORS:
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{name}", fake, lib=library)
    keys = tuple(_core.register_torch_kernels(library.ns, native))
    if keys:
        for name, *_ in _OPERATORS:
            # What PyTorch would do for a backward pass costs time; there is none, and the kernels
            # refuse what would need one.
            library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    return keys


NATIVE = register(_LIBRARY)

_OPS = torch.ops.kiln

# -------------------------------------------------- what stands for kiln.jit where PyTorch traces


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    scale: float | None = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    variant: Any = None,
    layout: str = "bshd",
    out: Any = None,
    lse: Any = None,
    return_lse: bool = False,
) -> Any:
    """kiln.jit.flash_attention as operators; a variant is no argument of theirs."""
    if variant is not None:
        raise TypeError(
            "flash_attention: variant cannot be traced, because an operator of PyTorch takes "
            "tensors and numbers only; call it outside of torch.compile, under "
            "torch.compiler.disable"
        )
    tensors = {"q": q, "k": k, "v": v, "sinks": sinks, "alibi_slopes": alibi_slopes}
    _check("flash_attention", {**tensors, "out": out, "lse": lse})
    options = {
        "causal": causal,
        "window": list(window),
        "softcap": softcap,
        "scale": scale,
        "sinks": sinks,
        "alibi_slopes": alibi_slopes,
        "layout": layout,
    }
    if out is None and lse is None:
        if return_lse:
            return _OPS.flash_attention_lse(q, k, v, **options)
        return _OPS.flash_attention(q, k, v, **options)
    if out is None:
        out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    if lse is None and return_lse:
        heads, rows = (2, 1) if layout == "bshd" else (1, 2)
        lse = q.new_empty((q.shape[0], q.shape[heads], q.shape[rows]), dtype=torch.float32)
    _OPS.flash_attention_out(q, k, v, **options, out=out, lse=lse)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """kiln.jit.scaled_dot_product_attention as an operator."""
    tensors = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    _check("scaled_dot_product_attention", tensors)
    return _OPS.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def gemm(
    a: Any,
    b: Any,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    bias: Any = None,
    activation: str | None = None,
    gate: str | None = None,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    alpha: float = 1.0,
    out: Any = None,
    out_dtype: Any = None,
    precision: str | None = None,
    accumulator: str = "float32",
    epilogue: str | None = None,
    config: Any = None,
) -> Any:
    """kiln.jit.gemm as operators; out_dtype is a torch.dtype or its name."""
    tensors = {"a": a, "b": b, "bias": bias, "residual": residual}
    _check("gemm", {**tensors, "scale_a": scale_a, "scale_b": scale_b, "out": out})
    if isinstance(config, dict):
        unknown = [key for key in config if key not in _TILE_KEYS]
        missing = [key for key in _TILE_KEYS[:4] if key not in config]
        if unknown or missing:
            raise ValueError(
                f"gemm: config must have {', '.join(_TILE_KEYS[:4])} and may have cluster and "
                f"splits; unknown: {unknown}, missing: {missing}"
            )
        config = [config.get(key, 0) for key in _TILE_KEYS]
    if isinstance(out_dtype, str):
        out_dtype = _dtype_of(out_dtype)
    if out is not None and out_dtype is not None and out.dtype != out_dtype:
        raise TypeError(
            f"gemm: out_dtype is {out_dtype} but out is {out.dtype}; give one of the two"
        )
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
        "precision": precision,
        "accumulator": accumulator,
        "epilogue": epilogue,
        "config": None if config is None else list(config),
    }
    if out is None:
        return _OPS.gemm(a, b, **options, out_dtype=out_dtype)
    _OPS.gemm_out(a, b, **options, out=out)
    return out


TRACED = {
    _core.flash_attention: flash_attention,
    _core.scaled_dot_product_attention: scaled_dot_product_attention,
    _core.gemm: gemm,
}
