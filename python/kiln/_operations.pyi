# Written by scripts/signatures.py from python/operations.pyi.
# kiln._core holds the functions; this is a stub of it alone.
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from ._core import BoundEpilogue, BoundVariant, Epilogue, Variant

Tensor: TypeAlias = Any
Window: TypeAlias = tuple[int, int]
AnyVariant: TypeAlias = BoundVariant | Variant | Sequence[BoundVariant | Variant]
Layout: TypeAlias = Literal["bshd", "bhsd"]
Count: TypeAlias = int
Flags: TypeAlias = bool | Any
Eager: TypeAlias = Any
EagerFlag: TypeAlias = bool
Activation: TypeAlias = Literal[
    "relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"
]
Gate: TypeAlias = Literal["halves", "interleaved"]
DType: TypeAlias = Any
Precision: TypeAlias = Literal["tf32", "fast"]
Accumulator: TypeAlias = Literal["float32", "float16"]
AnyEpilogue: TypeAlias = str | BoundEpilogue | Epilogue
Numbers: TypeAlias = dict[str, float]
NamedTensors: TypeAlias = dict[str, Any]
Tile: TypeAlias = dict[str, int] | tuple[int, ...]
Pdl: TypeAlias = bool | Literal["weights"]
PlainActivation: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "silu"]
LseBase: TypeAlias = Literal["e", "2"]
LseLayout: TypeAlias = Literal["ht", "th"]
GateActivation: TypeAlias = Literal["swiglu", "geglu", "geglu_tanh"]
ScaleLayout: TypeAlias = Literal["row", "column"]
Scoring: TypeAlias = Literal["softmax", "sigmoid"]

def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    top_left: bool = False,
    window: Window = (-1, -1),
    softcap: float = 0.0,
    scale: float | None = None,
    attn_mask: Tensor | None = None,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    variant: AnyVariant | None = None,
    q_scale: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    layout: Layout = "bshd",
    out: Tensor | None = None,
    lse: Tensor | None = None,
    return_lse: bool = False,
) -> Any: ...
def flash_attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens_q: Tensor,
    max_seqlen_q: Count,
    max_seqlen_k: Count,
    cu_seqlens_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    kv_indptr: Tensor | None = None,
    kv_indices: Tensor | None = None,
    causal: Flags = False,
    window: Window = (-1, -1),
    tree_mask: Tensor | None = None,
    softcap: float = 0.0,
    scale: float | None = None,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    variant: AnyVariant | None = None,
    q_scale: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    cp_world: Count = 1,
    cp_rank: Count = 0,
    cp_interleave: Count = 1,
    cp_seqused_k_total: Tensor | None = None,
    out_scale: Tensor | None = None,
    num_splits: Count = 0,
    plan: Tensor | None = None,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    return_lse: bool = False,
) -> Any: ...
def flash_attention_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    cache_seqlens: Tensor,
    block_table: Tensor | None = None,
    kv_indptr: Tensor | None = None,
    kv_indices: Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    k_new: Eager | None = None,
    v_new: Eager | None = None,
    rotary_cos: Eager | None = None,
    rotary_sin: Eager | None = None,
    rotary_interleaved: EagerFlag = True,
    causal: Flags = False,
    window: Window = (-1, -1),
    tree_mask: Tensor | None = None,
    softcap: float = 0.0,
    scale: float | None = None,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    variant: AnyVariant | None = None,
    q_scale: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    cp_world: Count = 1,
    cp_rank: Count = 0,
    cp_interleave: Count = 1,
    cp_seqused_k_total: Tensor | None = None,
    out_scale: Tensor | None = None,
    num_splits: Count = 0,
    plan: Tensor | None = None,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    return_lse: bool = False,
) -> Any: ...
def plan_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens_q: Tensor | None = None,
    max_seqlen_q: Count = 0,
    max_seqlen_k: Count = 0,
    cu_seqlens_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    cache_seqlens: Tensor | None = None,
    block_table: Tensor | None = None,
    kv_indptr: Tensor | None = None,
    kv_indices: Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    causal: Flags = False,
    window: Window = (-1, -1),
    tree_mask: Tensor | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    variant: AnyVariant | None = None,
    cp_world: Count = 1,
    cp_rank: Count = 0,
    cp_interleave: Count = 1,
    cp_seqused_k_total: Tensor | None = None,
    out_scale: Tensor | None = None,
    num_splits: Count = 0,
    plan: Tensor | None = None,
) -> Any: ...
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any: ...
def gemm(
    a: Tensor,
    b: Tensor,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    gate: Gate | None = None,
    residual: Tensor | None = None,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    alpha: float = 1.0,
    out: Tensor | None = None,
    out_dtype: DType | None = None,
    precision: Precision | None = None,
    accumulator: Accumulator = "float32",
    epilogue: AnyEpilogue | None = None,
    params: Numbers | None = None,
    tensors: NamedTensors | None = None,
    offsets: Tensor | None = None,
    counts: Tensor | None = None,
    expected_rows: Count = 0,
    config: Tile | None = None,
    pdl: Pdl = False,
) -> Any: ...
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    eps: float = 1e-06,
    weight_offset: float = 0.0,
    residual: Tensor | None = None,
    residual_out: Tensor | None = None,
    activation: PlainActivation | None = None,
    out: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-05,
    weight_offset: float = 0.0,
    residual: Tensor | None = None,
    residual_out: Tensor | None = None,
    activation: PlainActivation | None = None,
    out: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
def merge_states(
    outs: Tensor,
    lses: Tensor,
    *,
    base: LseBase = "e",
    layout: LseLayout = "ht",
    sinks: Tensor | None = None,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    return_lse: bool = False,
) -> Any: ...
def append_kv(
    key: Tensor,
    value: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    query: Tensor | None = None,
    query_out: Tensor | None = None,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float = 1e-06,
    positions: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    interleaved: bool = False,
) -> Any: ...
def quantize(
    x: Tensor,
    *,
    group: Count | None = 128,
    activation: GateActivation | None = None,
    scale_power_of_two: bool = False,
    scale_layout: ScaleLayout = "row",
    counts: Tensor | None = None,
    out: Tensor | None = None,
    scale_out: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
def moe_route(
    logits: Tensor,
    *,
    top_k: Count,
    scoring: Scoring = "softmax",
    renormalize: bool = True,
    bias: Tensor | None = None,
    groups: Count = 1,
    top_groups: Count = 1,
    scale: float = 1.0,
    weights: Tensor | None = None,
    experts: Tensor | None = None,
) -> Any: ...
def moe_permute(
    x: Tensor,
    experts: Tensor,
    *,
    num_experts: Count,
    out: Tensor | None = None,
    offsets: Tensor | None = None,
    inverse: Tensor | None = None,
) -> Any: ...
def moe_unpermute(
    y: Tensor,
    inverse: Tensor,
    weights: Tensor | None = None,
    *,
    out: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
