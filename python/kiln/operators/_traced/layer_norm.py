# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.layer_norm where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import number
from .. import layer_norm as _layer_norm
from .._values import check, dtype_of, write_to

_OP = "layer_norm"
_OPS = torch.ops.kiln


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
    given = {
        "x": x,
        "weight": weight,
        "bias": bias,
        "residual": residual,
        "residual_out": residual_out,
        "out": out,
    }
    check(_OP, given)
    options = {
        "eps": number(_OP, "eps", eps),
        "weight_offset": number(_OP, "weight_offset", weight_offset),
        "residual": residual,
        "activation": activation,
        "out_dtype": None if out_dtype is None else dtype_of(_OP, out_dtype),
    }
    if residual_out is None and out is None:
        return _OPS.layer_norm(x, weight, bias, **options)
    if out is None:
        out = _layer_norm.out(x, weight, bias, **options)
    write_to(_OPS.layer_norm_out, x, weight, bias, **options, residual_out=residual_out, out=out)
    return out
