# Written by scripts/signatures.py from python/operations.pyi.
"""The operators' schemas."""

from __future__ import annotations

from typing import NamedTuple


class Schema(NamedTuple):
    """An operator: its name, what follows it in its definition, the operation, the names of the
    arguments that may be positional, the results (none: it writes to its arguments), and those
    of the results that the operation returns only when asked to."""

    name: str
    text: str
    operation: str
    positional: tuple[str, ...]
    results: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


_FLASH_ATTENTION = (
    "Tensor q, Tensor k, Tensor v, *, bool causal=False, bool top_left=False, "
    "SymInt[] window=[-1, -1], float softcap=0.0, float? scale=None, Tensor? attn_mask=None, "
    "Tensor? sinks=None, Tensor? alibi_slopes=None, Tensor? q_scale=None, Tensor? k_scale=None, "
    "Tensor? v_scale=None, str layout='bshd'"
)
_FLASH_ATTENTION_VARLEN = (
    "Tensor q, Tensor k, Tensor v, *, Tensor cu_seqlens_q, SymInt max_seqlen_q, "
    "SymInt max_seqlen_k, Tensor? cu_seqlens_k=None, Tensor? seqused_k=None, "
    "Tensor? block_table=None, Tensor? kv_indptr=None, Tensor? kv_indices=None, "
    "bool causal=False, SymInt[] window=[-1, -1], Tensor? tree_mask=None, float softcap=0.0, "
    "float? scale=None, Tensor? sinks=None, Tensor? alibi_slopes=None, Tensor? q_scale=None, "
    "Tensor? k_scale=None, Tensor? v_scale=None, SymInt cp_world=1, SymInt cp_rank=0, "
    "SymInt cp_interleave=1, Tensor? cp_seqused_k_total=None, Tensor? out_scale=None, "
    "SymInt num_splits=0, Tensor? plan=None"
)
_FLASH_ATTENTION_WITH_KVCACHE = (
    "Tensor q, Tensor k_cache, Tensor v_cache, *, Tensor cache_seqlens, Tensor? block_table=None, "
    "Tensor? kv_indptr=None, Tensor? kv_indices=None, Tensor? cache_batch_idx=None, "
    "Tensor? cache_leftpad=None, bool causal=False, SymInt[] window=[-1, -1], "
    "Tensor? tree_mask=None, float softcap=0.0, float? scale=None, Tensor? sinks=None, "
    "Tensor? alibi_slopes=None, Tensor? q_scale=None, Tensor? k_scale=None, Tensor? v_scale=None, "
    "SymInt cp_world=1, SymInt cp_rank=0, SymInt cp_interleave=1, "
    "Tensor? cp_seqused_k_total=None, Tensor? out_scale=None, SymInt num_splits=0, "
    "Tensor? plan=None"
)
_PLAN_ATTENTION = (
    "Tensor q, Tensor k, Tensor v, *, Tensor? cu_seqlens_q=None, SymInt max_seqlen_q=0, "
    "SymInt max_seqlen_k=0, Tensor? cu_seqlens_k=None, Tensor? seqused_k=None, "
    "Tensor? cache_seqlens=None, Tensor? block_table=None, Tensor? kv_indptr=None, "
    "Tensor? kv_indices=None, Tensor? cache_batch_idx=None, Tensor? cache_leftpad=None, "
    "bool causal=False, SymInt[] window=[-1, -1], Tensor? tree_mask=None, float softcap=0.0, "
    "Tensor? alibi_slopes=None, SymInt cp_world=1, SymInt cp_rank=0, SymInt cp_interleave=1, "
    "Tensor? cp_seqused_k_total=None, Tensor? out_scale=None, SymInt num_splits=0"
)
_SCALED_DOT_PRODUCT_ATTENTION = (
    "Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
    "bool is_causal=False, *, float? scale=None, bool enable_gqa=False"
)
_GEMM = (
    "Tensor a, Tensor b, *, bool trans_a=False, bool trans_b=False, Tensor? bias=None, "
    "str? activation=None, str? gate=None, Tensor? residual=None, Tensor? scale_a=None, "
    "Tensor? scale_b=None, float alpha=1.0, ScalarType? out_dtype=None, str? precision=None, "
    "str accumulator='float32', str? epilogue=None, Tensor? offsets=None, Tensor? counts=None, "
    "SymInt expected_rows=0, int[]? config=None, str pdl='off'"
)
_RMS_NORM = (
    "Tensor x, Tensor? weight=None, *, float eps=1e-06, float weight_offset=0.0, "
    "Tensor? residual=None, str? activation=None, ScalarType? out_dtype=None"
)
_LAYER_NORM = (
    "Tensor x, Tensor? weight=None, Tensor? bias=None, *, float eps=1e-05, "
    "float weight_offset=0.0, Tensor? residual=None, str? activation=None, "
    "ScalarType? out_dtype=None"
)
_MERGE_STATES = "Tensor outs, Tensor lses, *, str base='e', str layout='ht', Tensor? sinks=None"
_APPEND_KV = (
    "Tensor key, Tensor value, Tensor slot_mapping, *, Tensor? k_scale=None, "
    "Tensor? v_scale=None, Tensor? query=None, Tensor? q_weight=None, Tensor? k_weight=None, "
    "float eps=1e-06, Tensor? positions=None, Tensor? cos=None, Tensor? sin=None, "
    "bool interleaved=False"
)
_QUANTIZE = (
    "Tensor x, *, SymInt? group=128, str? activation=None, bool scale_power_of_two=False, "
    "str scale_layout='row', Tensor? counts=None, ScalarType? out_dtype=None"
)
_MOE_ROUTE = (
    "Tensor logits, *, SymInt top_k, str scoring='softmax', bool renormalize=True, "
    "Tensor? bias=None, SymInt groups=1, SymInt top_groups=1, float scale=1.0"
)
_MOE_PERMUTE = "Tensor x, Tensor experts, *, SymInt num_experts"
_MOE_UNPERMUTE = "Tensor y, Tensor inverse, Tensor? weights=None, *, ScalarType? out_dtype=None"

SCHEMAS = (
    Schema(
        "flash_attention",
        f"({_FLASH_ATTENTION}) -> Tensor",
        "flash_attention",
        ("q", "k", "v"),
        ("out",),
    ),
    Schema(
        "flash_attention_lse",
        f"({_FLASH_ATTENTION}) -> (Tensor, Tensor)",
        "flash_attention",
        ("q", "k", "v"),
        ("out", "lse"),
        ("lse",),
    ),
    Schema(
        "flash_attention_out",
        f"({_FLASH_ATTENTION}, Tensor(a!) out, Tensor(b!)? lse=None) -> ()",
        "flash_attention",
        ("q", "k", "v"),
    ),
    Schema(
        "flash_attention_varlen",
        f"({_FLASH_ATTENTION_VARLEN}) -> Tensor",
        "flash_attention_varlen",
        ("q", "k", "v"),
        ("out",),
    ),
    Schema(
        "flash_attention_varlen_lse",
        f"({_FLASH_ATTENTION_VARLEN}) -> (Tensor, Tensor)",
        "flash_attention_varlen",
        ("q", "k", "v"),
        ("out", "lse"),
        ("lse",),
    ),
    Schema(
        "flash_attention_varlen_out",
        f"({_FLASH_ATTENTION_VARLEN}, Tensor(a!) out, Tensor(b!)? lse=None) -> ()",
        "flash_attention_varlen",
        ("q", "k", "v"),
    ),
    Schema(
        "flash_attention_with_kvcache",
        f"({_FLASH_ATTENTION_WITH_KVCACHE}) -> Tensor",
        "flash_attention_with_kvcache",
        ("q", "k_cache", "v_cache"),
        ("out",),
    ),
    Schema(
        "flash_attention_with_kvcache_lse",
        f"({_FLASH_ATTENTION_WITH_KVCACHE}) -> (Tensor, Tensor)",
        "flash_attention_with_kvcache",
        ("q", "k_cache", "v_cache"),
        ("out", "lse"),
        ("lse",),
    ),
    Schema(
        "flash_attention_with_kvcache_out",
        f"({_FLASH_ATTENTION_WITH_KVCACHE}, Tensor(a!) out, Tensor(b!)? lse=None) -> ()",
        "flash_attention_with_kvcache",
        ("q", "k_cache", "v_cache"),
    ),
    Schema(
        "plan_attention",
        f"({_PLAN_ATTENTION}) -> Tensor",
        "plan_attention",
        ("q", "k", "v"),
        ("plan",),
    ),
    Schema(
        "plan_attention_out",
        f"({_PLAN_ATTENTION}, Tensor(a!) plan) -> ()",
        "plan_attention",
        ("q", "k", "v"),
    ),
    Schema(
        "scaled_dot_product_attention",
        f"({_SCALED_DOT_PRODUCT_ATTENTION}) -> Tensor",
        "scaled_dot_product_attention",
        ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
        ("out",),
    ),
    Schema(
        "gemm",
        f"({_GEMM}) -> Tensor",
        "gemm",
        ("a", "b"),
        ("out",),
    ),
    Schema(
        "gemm_out",
        f"({_GEMM}, Tensor(a!) out) -> ()",
        "gemm",
        ("a", "b"),
    ),
    Schema(
        "rms_norm",
        f"({_RMS_NORM}) -> Tensor",
        "rms_norm",
        ("x", "weight"),
        ("out",),
    ),
    Schema(
        "rms_norm_out",
        f"({_RMS_NORM}, Tensor(a!)? residual_out=None, Tensor(b!) out) -> ()",
        "rms_norm",
        ("x", "weight"),
    ),
    Schema(
        "layer_norm",
        f"({_LAYER_NORM}) -> Tensor",
        "layer_norm",
        ("x", "weight", "bias"),
        ("out",),
    ),
    Schema(
        "layer_norm_out",
        f"({_LAYER_NORM}, Tensor(a!)? residual_out=None, Tensor(b!) out) -> ()",
        "layer_norm",
        ("x", "weight", "bias"),
    ),
    Schema(
        "merge_states",
        f"({_MERGE_STATES}) -> Tensor",
        "merge_states",
        ("outs", "lses"),
        ("out",),
    ),
    Schema(
        "merge_states_lse",
        f"({_MERGE_STATES}) -> (Tensor, Tensor)",
        "merge_states",
        ("outs", "lses"),
        ("out", "lse"),
        ("lse",),
    ),
    Schema(
        "merge_states_out",
        f"({_MERGE_STATES}, Tensor(a!) out, Tensor(b!)? lse=None) -> ()",
        "merge_states",
        ("outs", "lses"),
    ),
    Schema(
        "append_kv",
        f"({_APPEND_KV}, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor(c!)? query_out=None) -> ()",
        "append_kv",
        ("key", "value", "slot_mapping"),
    ),
    Schema(
        "quantize",
        f"({_QUANTIZE}) -> (Tensor, Tensor)",
        "quantize",
        ("x",),
        ("out", "scale_out"),
    ),
    Schema(
        "quantize_out",
        f"({_QUANTIZE}, Tensor(a!) out, Tensor(b!) scale_out) -> ()",
        "quantize",
        ("x",),
    ),
    Schema(
        "moe_route",
        f"({_MOE_ROUTE}) -> (Tensor, Tensor)",
        "moe_route",
        ("logits",),
        ("weights", "experts"),
    ),
    Schema(
        "moe_route_out",
        f"({_MOE_ROUTE}, Tensor(a!) weights, Tensor(b!) experts) -> ()",
        "moe_route",
        ("logits",),
    ),
    Schema(
        "moe_permute",
        f"({_MOE_PERMUTE}) -> (Tensor, Tensor, Tensor)",
        "moe_permute",
        ("x", "experts"),
        ("out", "offsets", "inverse"),
    ),
    Schema(
        "moe_permute_out",
        f"({_MOE_PERMUTE}, Tensor(a!) out, Tensor(b!) offsets, Tensor(c!) inverse) -> ()",
        "moe_permute",
        ("x", "experts"),
    ),
    Schema(
        "moe_unpermute",
        f"({_MOE_UNPERMUTE}) -> Tensor",
        "moe_unpermute",
        ("y", "inverse", "weights"),
        ("out",),
    ),
    Schema(
        "moe_unpermute_out",
        f"({_MOE_UNPERMUTE}, Tensor(a!) out) -> ()",
        "moe_unpermute",
        ("y", "inverse", "weights"),
    ),
)
