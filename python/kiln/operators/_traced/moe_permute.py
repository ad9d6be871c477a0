# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.moe_permute where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import integer
from .. import moe_permute as _moe_permute
from .._values import check, write_to

_OP = "moe_permute"
_OPS = torch.ops.kiln


def moe_permute(
    x: Any,
    experts: Any,
    *,
    num_experts: Any,
    out: Any = None,
    offsets: Any = None,
    inverse: Any = None,
) -> Any:
    """kiln.jit.moe_permute as operators of PyTorch."""
    given = {
        "x": x,
        "experts": experts,
        "out": out,
        "offsets": offsets,
        "inverse": inverse,
    }
    check(_OP, given)
    options = {
        "num_experts": integer(_OP, "num_experts", num_experts),
    }
    if out is None and offsets is None and inverse is None:
        return _OPS.moe_permute(x, experts, **options)
    if out is None:
        out = _moe_permute.out(x, experts, **options)
    if offsets is None:
        offsets = _moe_permute.offsets(x, experts, **options)
    if inverse is None:
        inverse = _moe_permute.inverse(x, experts, **options)
    write_to(_OPS.moe_permute_out, x, experts, **options, out=out, offsets=offsets, inverse=inverse)
    return (out, offsets, inverse)
