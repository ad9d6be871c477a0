"""Kiln as PyTorch's FlashAttention (PyTorch 2.11 and later).

    import kiln.integrations.torch, torch
    kiln.integrations.torch.register()
    torch.nn.attention.activate_flash_attention_impl("KILN")

Then the CUDA kernels of PyTorch's FlashAttention operators are Kiln's, which serves
scaled_dot_product_attention where it takes this route, and torch.nn.attention.varlen. Calls that
Kiln does not compute, those with gradients among them, go to the kernel that was there before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..compat.flash_attn import _dense, _varlen
from ..compat.flash_attn._arguments import unit_stride
from ._limits import is_head_dim

NAME = "KILN"
_KEY = "CUDA"
_HALF = (torch.float16, torch.bfloat16)
_EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
_thread = threading.local()


class _NotOurs(Exception):
    """Says why Kiln does not compute a call."""


def register() -> None:
    """Adds "KILN" to torch.nn.attention.list_flash_attention_impls(). Nothing changes before
    torch.nn.attention.activate_flash_attention_impl("KILN"); restore_flash_attention_impl() takes
    it back. May be called again.

    Raises RuntimeError before PyTorch 2.11, which has no such registry.
    """
    registry = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if registry is None or not hasattr(torch.library, "get_kernel"):
        raise RuntimeError(
            f"PyTorch {torch.__version__} has no registry of FlashAttention implementations; "
            "install PyTorch 2.11 or later, or call jit.scaled_dot_product_attention"
        )
    registry(NAME, register_fn=_activate)


class _Handle:
    """The handle that PyTorch keeps while Kiln is active."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def remove(self) -> None:
        """Gives the operators back to the kernels that were there before."""
        self._library = None  # the end of a library takes its kernels out


def _activate() -> _Handle:
    """Puts Kiln's kernels before those that the operators have now."""
    library = torch.library.Library("aten", "IMPL", _KEY)
    for name, kernel in _KERNELS.items():
        if _exists(name):
            library.impl(name, _or_previous(name, kernel), _KEY, with_keyset=True)
    return _Handle(library)


def _exists(name: str) -> bool:
    """Whether this version of PyTorch has the operator."""
    packet, _, overload = name.partition(".")
    overloads = getattr(torch.ops.aten, packet, None)
    return overloads is not None and (overload or "default") in overloads.overloads()


def _or_previous(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an operator's kernel, which hands what Kiln does not compute to the previous one."""
    try:
        previous = torch.library.get_kernel(f"aten::{name}", _KEY)
    except RuntimeError:  # there is none: PyTorch was built without FlashAttention
        previous = None

    def either(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        # PyTorch's kernels call operators of this table, too, with tensors that no longer say
        # that they require grad.
        if previous is not None and getattr(_thread, "in_previous", False):
            return previous.call_boxed(keyset, *args, **kwargs)
        try:
            return kernel(*args, **kwargs)
        except _NotOurs as reason:
            if previous is None:
                raise RuntimeError(
                    f"aten::{name}: {reason}, which Kiln does not compute, and PyTorch has no "
                    "FlashAttention kernel of its own here; choose another backend with "
                    "torch.nn.attention.sdpa_kernel"
                ) from None
        _thread.in_previous = True
        try:
            return previous.call_boxed(keyset, *args, **kwargs)
        finally:
            _thread.in_previous = False

    return either


def _reasons(q: Any, k: Any, v: Any, scaled: bool, offsets: Any, options: Any) -> Iterator[str]:
    """Yields why Kiln does not compute a call, if there is a reason."""
    if q.requires_grad or k.requires_grad or v.requires_grad:
        yield "an input requires grad"
    eight = q.dtype in _EIGHT_BITS
    if q.dtype not in _HALF and not eight:
        yield f"query is {q.dtype}"
    if k.dtype != v.dtype or (k.dtype != q.dtype and not (scaled and k.dtype in _EIGHT_BITS)):
        yield f"query is {q.dtype}, key {k.dtype} and value {v.dtype}"
    for dim in (q.shape[-1], v.shape[-1]):
        # Queries of bytes: jit.flash_attention takes head dims of 16 to 256, in steps of 16.
        if not is_head_dim(dim) or (eight and (dim % 16 or dim > 256)):
            yield f"the head dim is {dim}"
    slopes = options.get("alibi_slopes")
    if slopes is not None and (slopes.dtype != torch.float32 or slopes.dim() not in (1, 2)):
        yield f"alibi_slopes are {slopes.dtype} {list(slopes.shape)}"
    if offsets[0] is None and options.get("block_table") is not None:
        yield "block_table is given without cum_seq_q"
    if offsets[0] is not None and offsets[1] is None and k.dim() == 3:
        yield "cum_seq_k is missing"


def _require(
    q: Any, k: Any, v: Any, dropout_p: float, debug: bool, descales: Any, offsets: Any, options: Any
) -> None:
    """Raises _NotOurs for calls that Kiln does not compute."""
    if dropout_p:
        raise _NotOurs(f"dropout_p is {dropout_p}")
    if debug:
        raise _NotOurs("return_debug_mask is True")
    scaled = any(x is not None for x in descales)
    for reason in _reasons(q, k, v, scaled, offsets, options):
        raise _NotOurs(reason)


def _attend(
    query: Any, key: Any, value: Any, offsets: Any, bounds: Any, descales: Any, options: Any
) -> tuple[Any, ...]:
    """Returns out, lse, rng_state, unused and debug_attn_mask of [batch, len, heads, head_dim] or,
    with offsets, packed tensors."""
    ends = (options.pop("window_size_left", None), options.pop("window_size_right", None))
    options["window"] = tuple(-1 if end is None else end for end in ends)
    options.update(zip(("q_scale", "k_scale", "v_scale"), descales), return_lse=True)
    attend: Callable[..., Any] = _dense.attend
    if offsets[0] is not None:
        options.update(zip(("cu_seqlens_q", "cu_seqlens_k"), offsets))
        options.update(zip(("max_seqlen_q", "max_seqlen_k"), bounds))
        attend = _varlen.attend
    out, lse = attend(unit_stride(query), unit_stride(key), unit_stride(value), **options)
    # Without dropout nobody reads these two, so that their values may be any.
    seed = torch.empty(2, dtype=torch.uint64, device=query.device)
    return out, lse, seed, seed.new_empty(()), query.new_empty(0)


def _forward(
    query: Any,
    key: Any,
    value: Any,
    cum_seq_q: Any,
    cum_seq_k: Any,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *descales: Any,
    **options: Any,
) -> tuple[Any, ...]:
    """aten::_flash_attention_forward, and with descales its .quantized overload."""
    offsets, bounds = (cum_seq_q, cum_seq_k), (max_q, max_k)
    _require(query, key, value, dropout_p, return_debug_mask, descales, offsets, options)
    options["causal"] = is_causal
    return _attend(query, key, value, offsets, bounds, descales, options)


def _forward_into(out: Any, *args: Any, **options: Any) -> Any:
    """aten::_flash_attention_forward_no_dropout_inplace: writes to out and returns lse."""
    return _forward(*args, out=out, **options)[1]


def _scaled_dot_product(
    query: Any,
    key: Any,
    value: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
    descales: tuple[Any, ...] = (),
) -> tuple[Any, ...]:
    """aten::_scaled_dot_product_flash_attention of [batch, heads, len, head_dim]: returns out,
    lse, None, None, the lengths, rng_state, unused and debug_attn_mask."""
    lengths, offsets = (query.shape[2], key.shape[2]), (None, None)
    # Asked before the views are made, which no longer say that they require grad.
    _require(query, key, value, dropout_p, return_debug_mask, descales, offsets, {})
    dtype = torch.bfloat16 if query.dtype in _EIGHT_BITS else query.dtype  # as flash-attn 3
    out = torch.empty_like(query, dtype=dtype)  # PyTorch's compiler expects query's strides
    if value.shape[-1] != query.shape[-1]:
        out = query.new_empty((*query.shape[:-1], value.shape[-1]), dtype=dtype)
    options = {"scale": scale, "causal": is_causal, "out": out.transpose(1, 2)}
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    _, lse, *auxiliary = _attend(q, k, v, offsets, lengths, descales, options)
    return (out, lse, None, None, *lengths, *auxiliary)


def _scaled_dot_product_quantized(
    query: Any, key: Any, value: Any, q: Any, k: Any, v: Any, *flags: Any, **options: Any
) -> tuple[Any, ...]:
    """Likewise, its .quantized overload: q, k and v are the scales of 8-bit tensors. The result of
    an 8-bit query is bfloat16."""
    return _scaled_dot_product(query, key, value, *flags, descales=(q, k, v), **options)


_KERNELS: dict[str, Callable[..., Any]] = {
    "_flash_attention_forward": _forward,
    "_flash_attention_forward.quantized": _forward,
    "_flash_attention_forward_no_dropout_inplace": _forward_into,
    "_scaled_dot_product_flash_attention": _scaled_dot_product,
    "_scaled_dot_product_flash_attention.quantized": _scaled_dot_product_quantized,
}
