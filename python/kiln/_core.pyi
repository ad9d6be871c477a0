# The compiled part, as type checkers see it. Tensors are of any framework, hence Any.
from collections.abc import Callable, Sequence
from typing import Any, Literal

Activation = Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh"]

class Error(RuntimeError): ...

class CompileError(Error):
    log: str
    path: str

class CudaError(Error):
    call: str
    name: str
    message: str

class CompileDisabled(Error):
    spec: dict[str, Any] | None

class EmulatorError(Error):
    fault: str
    kernel: str | None
    block: tuple[int, int, int] | None
    warp: int | None
    lane: int | None
    ptx_line: int | None
    instruction: str | None
    source: str | None

class BoundVariant:
    @property
    def name(self) -> str: ...

class Variant:
    def __init__(
        self,
        name: str,
        *,
        params: dict[str, str] | None = None,
        tensors: dict[str, str] | None = None,
        logits: str | None = None,
        mask: str | None = None,
        file: Any = None,
    ) -> None: ...
    def __call__(self, **values: Any) -> BoundVariant: ...
    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...

def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    scale: float | None = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    variant: BoundVariant | Variant | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    out: Any = None,
    lse: Any = None,
    return_lse: bool = False,
) -> Any: ...
def explain_flash_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    scale: float | None = None,
    sinks: Any = None,
    alibi_slopes: Any = None,
    variant: BoundVariant | Variant | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    out: Any = None,
    lse: Any = None,
    return_lse: bool = False,
) -> str: ...
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any: ...
def explain_scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str: ...
def gemm(
    a: Any,
    b: Any,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    bias: Any = None,
    activation: Activation | None = None,
    gate: Literal["halves", "interleaved"] | None = None,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    alpha: float = 1.0,
    out: Any = None,
    out_dtype: Any = None,
    precision: Literal["tf32", "fast"] | None = None,
    accumulator: Literal["float32", "float16"] = "float32",
    epilogue: str | None = None,
    config: dict[str, int] | tuple[int, ...] | None = None,
) -> Any: ...
def explain_gemm(
    a: Any,
    b: Any,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    bias: Any = None,
    activation: Activation | None = None,
    gate: Literal["halves", "interleaved"] | None = None,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    alpha: float = 1.0,
    out: Any = None,
    out_dtype: Any = None,
    precision: Literal["tf32", "fast"] | None = None,
    accumulator: Literal["float32", "float16"] = "float32",
    epilogue: str | None = None,
    config: dict[str, int] | tuple[int, ...] | None = None,
) -> str: ...

class NoCompile:
    def __init__(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...

def version() -> str: ...
def set_jit(mode: str) -> str: ...
def set_device(choice: str) -> str: ...
def device() -> str: ...
def stats() -> str: ...
def reset_stats() -> None: ...
def clear_memory_cache() -> None: ...
def prewarm(
    specs: str,
    archs: Sequence[str],
    jobs: int,
    recompile: bool,
    check_only: bool,
    progress: Callable[[int, int, str, str, float], object] | None,
) -> str: ...
def preload(spec: str, device: int | None) -> None: ...
def inspect(spec: str, arch: str) -> tuple[str, list[bytes]]: ...
def enumerate_specs(arch: str) -> str: ...
def gemm_configs(spec: str, arch: str, k: int) -> str: ...
def set_tuning(path: str) -> str: ...
def diagnose() -> str: ...
def nvrtc_info(load: bool) -> dict[str, Any]: ...
def set_python_paths(paths: Sequence[str]) -> None: ...
def set_log(callback: Callable[[int, str], object] | None) -> None: ...
def ptx_entries(ptx: str) -> list[dict[str, Any]]: ...
def run_ptx(
    ptx: str,
    entry: str,
    arch: str,
    grid: Sequence[int],
    block: Sequence[int],
    cluster: Sequence[int],
    shared_bytes: int,
    arguments: bytes,
    spans: Sequence[tuple[int, int, bool]],
    options: str,
    trace_block: int,
    trace_thread: int,
) -> None: ...
def encode_tensor_map(
    address: int,
    dtype: str,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
) -> bytes: ...
def register_torch_kernels(namespace: str, library: str) -> list[str]: ...
def cache_info() -> str: ...
def cache_list() -> str: ...
def cache_verify() -> str: ...
def cache_clear() -> str: ...
def cache_prune(
    *, max_bytes: int | None, unused_since: int, older_than_nvrtc: str, dry_run: bool
) -> str: ...
