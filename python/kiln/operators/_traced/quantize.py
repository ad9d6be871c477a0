# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.quantize where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag, integer
from .. import quantize as _quantize
from .._values import check, dtype_of, write_to

_OP = "quantize"
_OPS = torch.ops.kiln


def quantize(
    x: Any,
    *,
    group: Any = 128,
    activation: Any = None,
    scale_power_of_two: Any = False,
    scale_layout: Any = "row",
    counts: Any = None,
    out: Any = None,
    scale_out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """kiln.jit.quantize as operators of PyTorch."""
    given = {
        "x": x,
        "counts": counts,
        "out": out,
        "scale_out": scale_out,
    }
    check(_OP, given)
    options = {
        "group": None if group is None else integer(_OP, "group", group),
        "activation": activation,
        "scale_power_of_two": flag(_OP, "scale_power_of_two", scale_power_of_two),
        "scale_layout": scale_layout,
        "counts": counts,
        "out_dtype": None if out_dtype is None else dtype_of(_OP, out_dtype),
    }
    if out is None and scale_out is None:
        return _OPS.quantize(x, **options)
    if out is None:
        out = _quantize.out(x, **options)
    if scale_out is None:
        scale_out = _quantize.scale_out(x, **options)
    write_to(_OPS.quantize_out, x, **options, out=out, scale_out=scale_out)
    return (out, scale_out)
