# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.moe_route where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag, integer, number
from .. import moe_route as _moe_route
from .._values import check

_OP = "moe_route"
_OPS = torch.ops.kiln


def moe_route(
    logits: Any,
    *,
    top_k: Any,
    scoring: Any = "softmax",
    renormalize: Any = True,
    bias: Any = None,
    groups: Any = 1,
    top_groups: Any = 1,
    scale: Any = 1.0,
    weights: Any = None,
    experts: Any = None,
) -> Any:
    """kiln.jit.moe_route as operators of PyTorch."""
    given = {
        "logits": logits,
        "bias": bias,
        "weights": weights,
        "experts": experts,
    }
    check(_OP, given)
    options = {
        "top_k": integer(_OP, "top_k", top_k),
        "scoring": scoring,
        "renormalize": flag(_OP, "renormalize", renormalize),
        "bias": bias,
        "groups": integer(_OP, "groups", groups),
        "top_groups": integer(_OP, "top_groups", top_groups),
        "scale": number(_OP, "scale", scale),
    }
    if weights is None and experts is None:
        return _OPS.moe_route(logits, **options)
    if weights is None:
        weights = _moe_route.weights(logits, **options)
    if experts is None:
        experts = _moe_route.experts(logits, **options)
    _OPS.moe_route_out(logits, **options, weights=weights, experts=experts)
    return (weights, experts)
