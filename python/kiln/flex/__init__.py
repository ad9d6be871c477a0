"""FlexAttention's callables on Kiln's kernels. kiln.jit has the function itself."""

from __future__ import annotations

from typing import Any

_attention: Any = None


def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: dict[str, Any] | None = None,
    *,
    return_aux: Any = None,
    mask_mod: Any = None,
) -> Any:
    """PyTorch's torch.nn.attention.flex_attention, compiled by Kiln: the same arguments, the same
    results. Its callables become part of the attention kernel.

    query [batch, heads, len_q, head_dim], key and value [batch, heads_kv, len_kv, ..] are tensors
    of PyTorch, float16 or bfloat16. Returns the attention [batch, heads, len_q, head_dim_v].

        score_mod       score_mod(score, b, h, q_idx, kv_idx) returns the new score. It is called
                        with stand-ins for scalars, and its result compiled; and again when what it
                        reads has changed or cannot be compared
        block_mask      a BlockMask of create_block_mask(): its lists decide which blocks are
                        computed at all, and its mask_mod what is seen of partial blocks
        scale           of the scores; None is head_dim ** -0.5
        enable_gqa      heads may be a multiple of heads_kv
        return_lse      also return the natural logarithm of each row's sum. PyTorch prefers
                        return_aux
        kernel_options  of PyTorch's kernels: ignored, with a warning
        return_aux      an AuxRequest of PyTorch: AuxRequest(lse=True, max_scores=True) returns
                        (out, AuxOutput)
        mask_mod        mask_mod(b, h, q_idx, kv_idx) without a BlockMask: true where a key is
                        seen. Not in PyTorch's function

    What the callables capture is read at every call: new numbers and tensors run the same kernel.
    docs/flex_attention.md lists what callables may do.

    Raises ValueError or TypeError for arguments and callables that are not supported.

        >>> import torch
        >>> from kiln import jit
        >>> q, k, v = torch.randn(3, 1, 2, 40, 64, dtype=torch.float16)
        >>> cap = 20.0
        >>> def capped(score, b, h, q_idx, kv_idx):
        ...     return cap * torch.tanh(score / cap)
        >>> def causal(b, h, q_idx, kv_idx):
        ...     return q_idx >= kv_idx
        >>> jit.flex_attention(q, k, v, capped, mask_mod=causal).shape
        torch.Size([1, 2, 40, 64])
    """
    global _attention
    if _attention is None:  # an import statement takes as long as a tenth of a call
        from .attention import attention  # imports PyTorch, which Kiln works without

        _attention = attention
    return _attention(
        query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, kernel_options,
        return_aux, mask_mod,
    )  # fmt: skip


flex_attention.__module__ = "kiln.jit"
