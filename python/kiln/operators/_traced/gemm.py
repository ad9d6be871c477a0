# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.gemm where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag, integer, number
from .._epilogues import call as call_with_epilogue
from .._values import check, dtype_of, pdl_name, tile_numbers, write_to

_OP = "gemm"
_OPS = torch.ops.kiln


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
    params: Any = None,
    tensors: Any = None,
    offsets: Any = None,
    counts: Any = None,
    expected_rows: Any = 0,
    config: Any = None,
    pdl: Any = False,
) -> Any:
    """kiln.jit.gemm as operators of PyTorch."""
    given = {
        "a": a,
        "b": b,
        "bias": bias,
        "residual": residual,
        "scale_a": scale_a,
        "scale_b": scale_b,
        "out": out,
        "offsets": offsets,
        "counts": counts,
    }
    check(_OP, given)
    options = {
        "trans_a": flag(_OP, "trans_a", trans_a),
        "trans_b": flag(_OP, "trans_b", trans_b),
        "bias": bias,
        "activation": activation,
        "gate": gate,
        "residual": residual,
        "scale_a": scale_a,
        "scale_b": scale_b,
        "alpha": number(_OP, "alpha", alpha),
        "out_dtype": None if out_dtype is None else dtype_of(_OP, out_dtype),
        "precision": precision,
        "accumulator": accumulator,
        "epilogue": epilogue,
        "offsets": offsets,
        "counts": counts,
        "expected_rows": integer(_OP, "expected_rows", expected_rows),
        "config": None if config is None else tile_numbers(_OP, config),
        "pdl": pdl_name(_OP, pdl),
    }
    if not isinstance(epilogue, (str, type(None))) or params or tensors:
        return call_with_epilogue(_OP, (a, b), epilogue, params, tensors, options, out)
    if out is None:
        return _OPS.gemm(a, b, **options)
    write_to(_OPS.gemm_out, a, b, **options, out=out)
    return out
