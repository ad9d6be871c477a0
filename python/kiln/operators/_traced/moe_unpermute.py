# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.moe_unpermute where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from .._values import check, dtype_of, write_to

_OP = "moe_unpermute"
_OPS = torch.ops.kiln


def moe_unpermute(
    y: Any,
    inverse: Any,
    weights: Any = None,
    *,
    out: Any = None,
    out_dtype: Any = None,
) -> Any:
    """kiln.jit.moe_unpermute as operators of PyTorch."""
    given = {
        "y": y,
        "inverse": inverse,
        "weights": weights,
        "out": out,
    }
    check(_OP, given)
    options = {
        "out_dtype": None if out_dtype is None else dtype_of(_OP, out_dtype),
    }
    if out is None:
        return _OPS.moe_unpermute(y, inverse, weights, **options)
    write_to(_OPS.moe_unpermute_out, y, inverse, weights, **options, out=out)
    return out
