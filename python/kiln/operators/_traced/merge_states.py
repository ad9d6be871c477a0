# Written by scripts/signatures.py from python/operations.pyi.
"""What stands for jit.merge_states where PyTorch traces."""

from __future__ import annotations

from typing import Any

import torch

from ..._numbers import flag
from .. import merge_states as _merge_states
from .._values import check, write_to

_OP = "merge_states"
_OPS = torch.ops.kiln


def merge_states(
    outs: Any,
    lses: Any,
    *,
    base: Any = "e",
    layout: Any = "ht",
    sinks: Any = None,
    out: Any = None,
    lse: Any = None,
    return_lse: Any = False,
) -> Any:
    """kiln.jit.merge_states as operators of PyTorch."""
    given = {
        "outs": outs,
        "lses": lses,
        "sinks": sinks,
        "out": out,
        "lse": lse,
    }
    check(_OP, given)
    flag(_OP, "return_lse", return_lse)
    options = {
        "base": base,
        "layout": layout,
        "sinks": sinks,
    }
    if out is None and lse is None:
        if return_lse:
            return _OPS.merge_states_lse(outs, lses, **options)
        return _OPS.merge_states(outs, lses, **options)
    if out is None:
        out = _merge_states.out(outs, lses, **options)
    if lse is None and return_lse:
        lse = _merge_states.lse(outs, lses, **options)
    write_to(_OPS.merge_states_out, outs, lses, **options, out=out, lse=lse)
    return (out, lse) if return_lse else out
