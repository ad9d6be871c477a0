# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.append_kv where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag, number
from .. import append_kv as _append_kv
from .._values import check

_OP = "append_kv"
_OPS = torch.ops.kiln


def append_kv(
    key: Any,
    value: Any,
    k_cache: Any,
    v_cache: Any,
    slot_mapping: Any,
    *,
    k_scale: Any = None,
    v_scale: Any = None,
    query: Any = None,
    query_out: Any = None,
    q_weight: Any = None,
    k_weight: Any = None,
    eps: Any = 1e-06,
    positions: Any = None,
    cos: Any = None,
    sin: Any = None,
    interleaved: Any = False,
) -> Any:
    """kiln.jit.append_kv as operators of PyTorch."""
    given = {
        "key": key,
        "value": value,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "slot_mapping": slot_mapping,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "query": query,
        "query_out": query_out,
        "q_weight": q_weight,
        "k_weight": k_weight,
        "positions": positions,
        "cos": cos,
        "sin": sin,
    }
    check(_OP, given)
    options = {
        "k_scale": k_scale,
        "v_scale": v_scale,
        "query": query,
        "q_weight": q_weight,
        "k_weight": k_weight,
        "eps": number(_OP, "eps", eps),
        "positions": positions,
        "cos": cos,
        "sin": sin,
        "interleaved": flag(_OP, "interleaved", interleaved),
    }
    if query_out is None and query is not None:
        query_out = _append_kv.query_out(key, value, slot_mapping, **options)
    _OPS.append_kv(
        key, value, slot_mapping, **options, k_cache=k_cache, v_cache=v_cache, query_out=query_out
    )
    return query_out
