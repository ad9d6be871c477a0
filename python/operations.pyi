"""The signature of every operation of kiln.jit: the one place where it stands.

scripts/signatures.py reads this file, which nothing imports, and writes from it what C++, the
stubs, PyTorch's operators and help() know of it; `make signatures` does so. Conventions:

- Parameters without a default come first and are what C++ insists on.
- `Annotated[T, "type"]` names PyTorch's type of an operator's argument, or None: where PyTorch
  traces, such an argument cannot be given. A third item names the function of
  kiln/operators/_values.py or kiln/_numbers.py that checks the user's value and returns PyTorch's,
  and a fourth is the operator's default where it is another than the parameter's.
- A `Written` tensor is written to when given. `return_x: bool` asks for the result x as well.
- `@operators(name=results)` lists the PyTorch operators of an operation: those with results return
  new tensors; the one without writes to the Written ones, of which it needs every result that is
  not asked for by a `return_x`.
- Where there is none with results, the operation updates its Written tensors. One that may be None
  is called `x_out`: it is made where x is given, and is what the operation returns.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from kiln._core import BoundEpilogue, BoundVariant, Epilogue, Variant

Function = TypeVar("Function")

def operators(**results: tuple[str, ...]) -> Callable[[Function], Function]: ...

Tensor: TypeAlias = Annotated[Any, "Tensor"]  # of any framework
Written: TypeAlias = Annotated[Any, "Tensor"]
Eager: TypeAlias = Annotated[Any, None]  # a tensor that operators do not take
EagerFlag: TypeAlias = Annotated[bool, None]
Flags: TypeAlias = Annotated[bool | Any, "bool", "one_flag"]  # a bool, or a tensor of them if eager
DType: TypeAlias = Annotated[Any, "ScalarType", "dtype_of"]  # of any framework, or its name
Count: TypeAlias = Annotated[int, "SymInt", "integer"]
Window: TypeAlias = Annotated[tuple[int, int], "SymInt[]", "window_numbers"]
AnyVariant: TypeAlias = Annotated[BoundVariant | Variant | Sequence[BoundVariant | Variant], None]
AnyEpilogue: TypeAlias = Annotated[str | BoundEpilogue | Epilogue, "str"]
Numbers: TypeAlias = Annotated[dict[str, float], None]
NamedTensors: TypeAlias = Annotated[dict[str, Any], None]
Layout: TypeAlias = Annotated[Literal["bshd", "bhsd"], "str"]
Activation: TypeAlias = Annotated[
    Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"], "str"
]
PlainActivation: TypeAlias = Annotated[Literal["relu", "gelu", "gelu_tanh", "silu"], "str"]
GateActivation: TypeAlias = Annotated[Literal["swiglu", "geglu", "geglu_tanh"], "str"]
Gate: TypeAlias = Annotated[Literal["halves", "interleaved"], "str"]
Precision: TypeAlias = Annotated[Literal["tf32", "fast"], "str"]
Accumulator: TypeAlias = Annotated[Literal["float32", "float16"], "str"]
LseBase: TypeAlias = Annotated[Literal["e", "2"], "str"]
LseLayout: TypeAlias = Annotated[Literal["ht", "th"], "str"]
ScaleLayout: TypeAlias = Annotated[Literal["row", "column"], "str"]
Scoring: TypeAlias = Annotated[Literal["softmax", "sigmoid"], "str"]
Pdl: TypeAlias = Annotated[bool | Literal["weights"], "str", "pdl_name", "off"]
Tile: TypeAlias = Annotated[dict[str, int] | tuple[int, ...], "int[]", "tile_numbers"]

@operators(
    flash_attention=("out",),
    flash_attention_lse=("out", "lse"),
    flash_attention_out=(),
)
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
    out: Written | None = None,
    lse: Written | None = None,
    return_lse: bool = False,
) -> Any: ...
@operators(
    flash_attention_varlen=("out",),
    flash_attention_varlen_lse=("out", "lse"),
    flash_attention_varlen_out=(),
)
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
    out: Written | None = None,
    lse: Written | None = None,
    return_lse: bool = False,
) -> Any: ...
@operators(
    flash_attention_with_kvcache=("out",),
    flash_attention_with_kvcache_lse=("out", "lse"),
    flash_attention_with_kvcache_out=(),
)
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
    out: Written | None = None,
    lse: Written | None = None,
    return_lse: bool = False,
) -> Any: ...
@operators(plan_attention=("plan",), plan_attention_out=())
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
    plan: Written | None = None,
) -> Any: ...
@operators(scaled_dot_product_attention=("out",))
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
@operators(gemm=("out",), gemm_out=())
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
    out: Written | None = None,
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
@operators(rms_norm=("out",), rms_norm_out=())
def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    residual: Tensor | None = None,
    residual_out: Written | None = None,
    activation: PlainActivation | None = None,
    out: Written | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
@operators(layer_norm=("out",), layer_norm_out=())
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    weight_offset: float = 0.0,
    residual: Tensor | None = None,
    residual_out: Written | None = None,
    activation: PlainActivation | None = None,
    out: Written | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
@operators(
    merge_states=("out",),
    merge_states_lse=("out", "lse"),
    merge_states_out=(),
)
def merge_states(
    outs: Tensor,
    lses: Tensor,
    *,
    base: LseBase = "e",
    layout: LseLayout = "ht",
    sinks: Tensor | None = None,
    out: Written | None = None,
    lse: Written | None = None,
    return_lse: bool = False,
) -> Any: ...
@operators(append_kv=())
def append_kv(
    key: Tensor,
    value: Tensor,
    k_cache: Written,
    v_cache: Written,
    slot_mapping: Tensor,
    *,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    query: Tensor | None = None,
    query_out: Written | None = None,
    q_weight: Tensor | None = None,
    k_weight: Tensor | None = None,
    eps: float = 1e-6,
    positions: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    interleaved: bool = False,
) -> Any: ...
@operators(quantize=("out", "scale_out"), quantize_out=())
def quantize(
    x: Tensor,
    *,
    group: Count | None = 128,
    activation: GateActivation | None = None,
    scale_power_of_two: bool = False,
    scale_layout: ScaleLayout = "row",
    counts: Tensor | None = None,
    out: Written | None = None,
    scale_out: Written | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
@operators(moe_route=("weights", "experts"), moe_route_out=())
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
    weights: Written | None = None,
    experts: Written | None = None,
) -> Any: ...
@operators(moe_permute=("out", "offsets", "inverse"), moe_permute_out=())
def moe_permute(
    x: Tensor,
    experts: Tensor,
    *,
    num_experts: Count,
    out: Written | None = None,
    offsets: Written | None = None,
    inverse: Written | None = None,
) -> Any: ...
@operators(moe_unpermute=("out",), moe_unpermute_out=())
def moe_unpermute(
    y: Tensor,
    inverse: Tensor,
    weights: Tensor | None = None,
    *,
    out: Written | None = None,
    out_dtype: DType | None = None,
) -> Any: ...
