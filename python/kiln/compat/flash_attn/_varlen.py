"""flash_attn_varlen_func: sequences that have lengths of their own."""

from __future__ import annotations

from typing import Any

import torch

from ... import jit
from . import _arguments as take

_OP = "flash_attn_varlen_func"
# The tensors that have a row for each sequence, where they have so many dimensions.
_ROWS = {
    "alibi_slopes": 2,
    "block_table": 2,
    "causal": 1,
    "cp_seqused_k_total": 1,
    "k_scale": 2,
    "q_scale": 2,
    "v_scale": 2,
}
_FORMS = {"cu_seqlens_q": "[batch + 1]", "cu_seqlens_k": "[batch + 1]", "seqused_k": "[batch]"}


def _check_used(seqused_q: Any, calls: dict[str, Any]) -> None:
    """Refuses what no pairs can be made of; Kiln checks the others, and the pairs."""
    names = ("cu_seqlens_q", "cu_seqlens_k", "seqused_k")
    given = {name: calls[name] for name in names if calls[name] is not None}
    forms = {name: (x, (1,), _FORMS[name]) for name, x in given.items()}
    take.tensors(_OP, {**forms, "seqused_q": (seqused_q, (1,), "[batch]")})
    if seqused_q.dtype != torch.int32:
        raise TypeError(
            f"{_OP}: seqused_q must be int32, got {str(seqused_q.dtype).removeprefix('torch.')}; "
            "convert it, for example with tensor.to(torch.int32)"
        )
    batch = calls["cu_seqlens_q"].shape[0] - 1
    for name, x in (*given.items(), ("seqused_q", seqused_q)):
        expected = batch if name.startswith("seqused") else batch + 1
        if x.shape[0] != expected:
            raise ValueError(f"{_OP}: {name} must have shape [{expected}], got {list(x.shape)}")


def _used_alone(seqused_q: Any, calls: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments for queries of which only the first seqused_q count: each sequence
    becomes two, of which the second has the other queries and no keys. No length leaves the
    device."""
    _check_used(seqused_q, calls)
    starts, ends = calls["cu_seqlens_q"][:-1], calls["cu_seqlens_q"][1:]
    offsets = torch.stack((starts, starts + seqused_q), 1).flatten()
    pairs = {"cu_seqlens_q": torch.cat((offsets, ends[-1:]))}
    if calls["cu_seqlens_k"] is not None:
        first, others = calls["cu_seqlens_k"][:1], calls["cu_seqlens_k"][1:]
        pairs["cu_seqlens_k"] = torch.cat((first, others.repeat_interleave(2)))
    if calls["seqused_k"] is not None:
        used = calls["seqused_k"]
        pairs["seqused_k"] = torch.stack((used, torch.zeros_like(used)), 1).flatten()
    for name, dims in _ROWS.items():
        rows = calls[name]
        if isinstance(rows, torch.Tensor) and rows.dim() == dims:
            pairs[name] = rows.repeat_interleave(2, 0)
    return {**calls, **pairs}


def attend(
    q: Any, k: Any, v: Any, *, num_splits: int | None = None, seqused_q: Any = None, **options: Any
) -> Any:
    """Calls jit.flash_attention_varlen, which takes every other name as it is."""
    if seqused_q is not None:
        options = _used_alone(seqused_q, options)
    return jit.flash_attention_varlen(q, k, v, num_splits=take.splits(num_splits), **options)


def most_keys(op: str, k: Any, block_table: Any) -> int:
    """Returns an upper bound of a sequence's keys that needs no length from the device."""
    if block_table is not None:
        take.tensors(op, {"block_table": (block_table, (2,), "[batch, width]")})
        return int(block_table.shape[1] * k.shape[1])
    return int(k.shape[0] if k.dim() == 3 else k.shape[1])


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Any = (-1, -1),
    softcap: float | None = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
    *,
    page_table: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    s_aux: Any = None,
    learnable_sink: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    out: Any = None,
    return_softmax_lse: bool = False,
    return_lse: bool = False,
    num_splits: int | None = 0,
    dynamic_causal: Any = None,
    cp_world_size: int = 1,
    cp_rank: int = 0,
    cp_tot_seqused_k: Any = None,
    qv: Any = None,
    q_v: Any = None,
    attention_chunk: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    scheduler_metadata: Any = None,
    fa_version: int | None = None,
) -> Any:
    """Attention over packed sequences that have lengths of their own.

    q                       [tokens, heads, head_dim], float16 or bfloat16, or 8-bit floats as k and
                            v (flash_attn_func), which give bfloat16
    k, v                    [tokens_k, heads_k, head_dim] with cu_seqlens_k, or with a block_table
                            pages of any size, [pages, page_size, heads_k, head_dim]
    cu_seqlens_q            [batch + 1], int32: sequence b has queries cu_seqlens_q[b] up to
                            cu_seqlens_q[b + 1]
    cu_seqlens_k            likewise of keys; with pages, only their numbers count
    max_seqlen_q            an upper bound of a sequence's queries; default: all of them
    max_seqlen_k            likewise of keys; default: what k or the pages hold
    block_table, page_table
                            [batch, width], int32: the pages of each sequence
    seqused_q, seqused_k    [batch], int32: only so many of each sequence's queries or keys are
                            used; with pages, seqused_k may stand for cu_seqlens_k. Unused queries
                            give 0
    q_descale, k_descale, v_descale
                            [batch, heads_k] float32, of 8-bit k and v
    dynamic_causal          [batch]: a flag for each sequence, in the place of causal
    cp_world_size, cp_rank, cp_tot_seqused_k
                            every cp_world_size-th key is here, as in jit.flash_attention_varlen
                            with cp_interleave=1

    The others are as for flash_attn_func, with lse [heads, tokens]; scheduler_metadata changes
    nothing. Lengths and pages are read by the kernel alone.

    Raises ValueError for dropout_p, qv, attention_chunk and inputs that require grad, and the
    errors of jit.flash_attention_varlen.
    """
    take.refuse(_OP, dropout_p=dropout_p, qv=qv, q_v=q_v, attention_chunk=attention_chunk)
    form = ((3, 4), "[tokens, heads, head_dim] or [pages, page_size, heads, head_dim]")
    take.tensors(
        _OP, {"q": (q, (3,), "[tokens, heads, head_dim]"), "k": (k, *form), "v": (v, *form)}
    )
    sinks = take.one_of(_OP, ("s_aux", "learnable_sink"), s_aux, learnable_sink)
    pages = take.one_of(_OP, ("block_table", "page_table"), block_table, page_table)
    descales = (q_descale, k_descale, v_descale)
    flags = causal if dynamic_causal is None else dynamic_causal
    options = take.shared(
        out, softmax_scale, flags, window_size, softcap, alibi_slopes, sinks, *descales
    )
    options.update(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, block_table=pages)
    options.update(seqused_q=seqused_q, seqused_k=seqused_k, num_splits=num_splits)
    options["max_seqlen_q"] = q.shape[0] if max_seqlen_q is None else max_seqlen_q
    options["max_seqlen_k"] = most_keys(_OP, k, pages) if max_seqlen_k is None else max_seqlen_k
    options["cp_world"], options["cp_rank"] = cp_world_size, cp_rank
    options["cp_seqused_k_total"] = cp_tot_seqused_k
    lse = take.wants_lse(_OP, return_attn_probs, return_softmax_lse or return_lse)
    found = take.with_any_heads(_OP, attend, q, k, v, return_lse=lse, **options)
    return take.results(found, sinks, return_attn_probs)
