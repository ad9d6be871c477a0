"""The result of gemm, without its values."""

from __future__ import annotations

from typing import Any

import torch

from ._values import default_dtype, is_known, ranks


def out(
    a: Any,
    b: Any,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    offsets: Any = None,
    **options: Any,
) -> Any:
    """[batch.., m, n]; gated activations halve n. With offsets, b's groups are no batch."""
    ranks("gemm", (2, 3), "2 dimensions, or 3 with a batch", a=a, b=b)
    m = a.shape[-1 if trans_a else -2]
    n = b.shape[-2 if trans_b else -1]
    if activation in ("swiglu", "geglu", "geglu_tanh"):
        if is_known(n % 2 == 1):
            raise ValueError(
                "gemm: b must have an even number of columns, as each output has two with this "
                f"activation, got {n}"
            )
        n = n // 2
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2] if offsets is None else ())
    return a.new_empty((*lead, m, n), dtype=default_dtype(a.dtype, out_dtype))
