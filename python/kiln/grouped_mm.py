"""PyTorch's grouped_mm on Kiln's GEMM. kiln.jit has the function itself."""

from __future__ import annotations

from typing import Any


def grouped_mm(
    mat_a: Any, mat_b: Any, *, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """PyTorch's torch.nn.functional.grouped_mm: the same arguments, the same results.

        mat_a      [rows, k] with offs, or [groups, rows, k] without
        mat_b      [groups, k, n]
        offs       int32 [groups]: where the rows of each group end. It is read on the device: the
                   call does not wait for it, and no content of it compiles a kernel
        bias       [n] or [groups, n], which PyTorch's own function does not take yet
        out_dtype  default mat_a's dtype

    Returns [rows, n] or [groups, rows, n]. Rows behind the last offset are not written. This is
    jit.gemm(mat_a, mat_b, offsets=offs), which has more options: activations, scales, counts.

    Raises ValueError or TypeError for arguments that are not supported, such as the products of
    two-dimensional mat_b, which a backward pass needs.

        >>> import torch
        >>> from kiln import jit
        >>> rows, weights = torch.ones(5, 16).half(), torch.ones(2, 24, 16).half()
        >>> jit.grouped_mm(rows, weights.mT, offs=torch.tensor([2, 5], dtype=torch.int32)).shape
        torch.Size([5, 24])
    """
    from .jit import gemm

    if len(mat_b.shape) != 3:
        raise ValueError(
            "grouped_mm: mat_b must have 3 dimensions [groups, k, n], got "
            f"{list(mat_b.shape)}; products that sum over rows are for a backward pass, which Kiln "
            "does not have"
        )
    if offs is None and len(mat_a.shape) != 3:
        raise ValueError(
            "grouped_mm: offs must be given where mat_a has 2 dimensions: where the rows of each "
            f"group end, int32 [{mat_b.shape[0]}]"
        )
    if offs is None and bias is not None and len(bias.shape) == 2:
        bias = bias[:, None]
    return gemm(mat_a, mat_b, offsets=offs, bias=bias, out_dtype=out_dtype)
