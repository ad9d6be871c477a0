# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.rms_norm where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import number
from .. import rms_norm as _rms_norm
from .._values import check, dtype_of, write_to

_OP = "rms_norm"
_OPS = torch.ops.kiln


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
    given = {
        "x": x,
        "weight": weight,
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
        return _OPS.rms_norm(x, weight, **options)
    if out is None:
        out = _rms_norm.out(x, weight, **options)
    write_to(_OPS.rms_norm_out, x, weight, **options, residual_out=residual_out, out=out)
    return out
