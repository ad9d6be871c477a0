"""The rules by which flash-attn's arguments become those of kiln.jit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..._numbers import is_integer

_ZERO_IS_NONE = ("attention_chunk", "dropout_p")
HEAD_DIM_STEP = 8  # Kiln's head dims are multiples of it; flash-attn pads others, too


def refuse(op: str, **values: Any) -> None:
    """Raises ValueError for what Kiln does not compute: any value but None, or 0 where flash-attn
    means nothing by it."""
    for name, value in values.items():
        if value is None or (name in _ZERO_IS_NONE and value == 0):
            continue
        given = "a tensor" if isinstance(value, torch.Tensor) else repr(value)
        raise ValueError(
            f"{op}: {name} is not among what Kiln computes here, got {given}; leave it out, or "
            "call flash-attn for it"
        )


def one_of(op: str, names: tuple[str, str], first: Any, second: Any) -> Any:
    """Returns the value of an argument that has two names."""
    if first is None or second is None:
        return second if first is None else first
    raise ValueError(
        f"{op}: {' and '.join(names)} are names of one argument; give only one of them"
    )


def tensors(op: str, forms: Mapping[str, tuple[Any, tuple[int, ...], str]]) -> None:
    """Refuses what is no tensor of PyTorch, or has other dimensions. Each name has the value, how
    many dimensions it may have, and what they are."""
    for name, (x, dims, form) in forms.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(
                f"{op}: {name} must be a torch.Tensor, got {type(x).__name__}; torch.as_tensor() "
                "makes one of an array or a list"
            )
        if x.dim() not in dims:
            several = " or ".join(map(str, dims))
            noun = "dimension" if dims == (1,) else "dimensions"
            raise ValueError(f"{op}: {name} must have {several} {noun} {form}, got {list(x.shape)}")


def window(size: Any) -> tuple[int, int]:
    """Returns Kiln's window: flash-attn also has None, or any negative number, for an open end."""
    if size is None:
        return -1, -1
    if (
        not isinstance(size, (tuple, list))
        or len(size) != 2
        or not all(end is None or is_integer(end) for end in size)
    ):
        raise TypeError(
            f"window_size must be a pair (left, right) of integers, -1 or None = open, got {size!r}"
        )
    left, right = (-1 if end is None or end < 0 else int(end) for end in size)
    return left, right


def splits(count: int | None) -> int:
    """Returns Kiln's num_splits: 1 is a promise about the order of sums, every other number a hint
    about speed, which Kiln decides by itself."""
    return 1 if count == 1 else 0


def unit_stride(x: Any) -> Any:
    """Returns x, or a copy where its last stride is not 1, as flash-attn makes one."""
    return x if x is None or x.stride(-1) == 1 else x.contiguous()


def padded(x: Any) -> Any:
    """Returns x with zeros behind each head, up to a head dim that Kiln has."""
    missing = -x.shape[-1] % HEAD_DIM_STEP
    return torch.nn.functional.pad(x, (0, missing)) if missing else x


def _room(op: str, out: Any, shape: list[int]) -> Any:
    """Returns a copy of the caller's out with a head dim that Kiln has. It keeps what lies in out,
    so that rows which the kernel does not write stay as they are."""
    tensors(op, {"out": (out, (3, 4), "like q")})
    if list(out.shape) != shape:
        raise ValueError(f"{op}: out must have shape {shape}, got {list(out.shape)}")
    return padded(out)


def with_any_heads(
    op: str, attend: Callable[..., Any], q: Any, k: Any, v: Any, *, scale: Any, out: Any,
    **options: Any,
) -> Any:  # fmt: skip
    """Calls attend, which returns the result alone or (result, lse), with copies of tensors whose
    head dims or last strides Kiln does not take."""
    q, k, v = unit_stride(q), unit_stride(k), unit_stride(v)
    dim, dim_v = q.shape[-1], v.shape[-1]
    if dim % HEAD_DIM_STEP == 0 and dim_v % HEAD_DIM_STEP == 0:
        return attend(q, k, v, scale=scale, out=out, **options)
    if k.shape[-1] != dim:  # padded, they might have one head dim
        same = "batch and head dim" if q.dim() == 4 else "head dim"
        raise ValueError(
            f"{op}: k must have the {same} of q, which is {list(q.shape)}; it is {list(k.shape)}"
        )
    scale = max(dim, 1) ** -0.5 if scale is None else scale
    room = None if out is None else _room(op, out, [*q.shape[:-1], dim_v])
    found = attend(padded(q), padded(k), padded(v), scale=scale, out=room, **options)
    result, *lse = found if isinstance(found, tuple) else (found,)
    result = result[..., :dim_v] if out is None else out.copy_(result[..., :dim_v])
    return (result, *lse) if lse else result


def shared(
    out: Any,
    softmax_scale: float | None,
    causal: Any,
    window_size: Any,
    softcap: float | None,
    alibi_slopes: Any,
    sinks: Any,
    *descales: Any,
) -> dict[str, Any]:
    """Returns what all functions take, under Kiln's names."""
    return {
        "out": out,
        "scale": softmax_scale,
        "causal": causal,
        "window": window(window_size),
        "softcap": softcap or 0.0,
        "alibi_slopes": alibi_slopes,
        "sinks": sinks,
        **dict(zip(("q_scale", "k_scale", "v_scale"), descales)),
    }


def lengths(count: int, batch: int, like: Any) -> Any:
    """Returns one number of keys for all sequences, where kernels read it."""
    return torch.full((batch,), count, dtype=torch.int32, device=like.device)


def wants_lse(op: str, return_attn_probs: bool, return_softmax_lse: bool) -> bool:
    """Returns whether the log-sum-exp is a result."""
    if return_attn_probs and return_softmax_lse:
        raise ValueError(
            f"{op}: return_attn_probs and return_softmax_lse ask for different results, (out, lse, "
            "None) and (out, lse); give only one of them"
        )
    return bool(return_attn_probs or return_softmax_lse)


def results(found: Any, sinks: Any, return_attn_probs: bool) -> Any:
    """Returns what flash-attn does: out, (out, lse) or (out, lse, None). lse, [.., heads, rows], is
    without sinks in Kiln and with them in flash-attn."""
    if not isinstance(found, tuple):
        return found
    out, lse = found
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.to(lse.dtype)[:, None])
    return (out, lse, None) if return_attn_probs else (out, lse)
