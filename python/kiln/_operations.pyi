# Written by scripts/signatures.py from python/operations.pyi.
# kiln._core holds the functions; this is a stub of it alone.
from typing import Any, Literal, TypeAlias

from ._core import BoundVariant, Variant

Tensor: TypeAlias = Any
Window: TypeAlias = tuple[int, int]
AnyVariant: TypeAlias = BoundVariant | Variant
Layout: TypeAlias = Literal["bshd", "bhsd"]
Activation: TypeAlias = Literal[
    "relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"
]
Gate: TypeAlias = Literal["halves", "interleaved"]
DType: TypeAlias = Any
Precision: TypeAlias = Literal["tf32", "fast"]
Accumulator: TypeAlias = Literal["float32", "float16"]
Tile: TypeAlias = dict[str, int] | tuple[int, ...]
PlainActivation: TypeAlias = Literal["relu", "gelu", "gelu_tanh", "silu"]
LseBase: TypeAlias = Literal["e", "2"]
LseLayout: TypeAlias = Literal["ht", "th"]

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
    layout: Layout = "bshd",
    out: Tensor | None = None,
    lse: Tensor | None = None,
    return_lse: bool = False,
) -> Any: ...
def explain_flash_attention(
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
    layout: Layout = "bshd",
    out: Tensor | None = None,
    lse: Tensor | None = None,
    return_lse: bool = False,
) -> str: ...
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
def explain_scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str: ...
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
    epilogue: str | None = None,
    config: Tile | None = None,
) -> Any: ...
def explain_gemm(
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
    epilogue: str | None = None,
    config: Tile | None = None,
) -> str: ...
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
def explain_rms_norm(
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
) -> str: ...
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
def explain_layer_norm(
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
) -> str: ...
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
def explain_merge_states(
    outs: Tensor,
    lses: Tensor,
    *,
    base: LseBase = "e",
    layout: LseLayout = "ht",
    sinks: Tensor | None = None,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    return_lse: bool = False,
) -> str: ...
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
def explain_append_kv(
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
) -> str: ...
