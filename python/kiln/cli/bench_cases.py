"""What `kiln bench` measures: calls of Kiln and of PyTorch on the same tensors, and their work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .. import jit
from .gemm_timing import Kind, Shape, operands

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def bytes_of(dtype: str) -> int:
    """The bytes of one element."""
    return _BYTES.get(dtype, 1)


@dataclasses.dataclass(frozen=True)
class Calls:
    """A case with its tensors: the calls that are timed, and their results for the comparison."""

    kiln: Callable[[], Any]
    peer: Callable[[], Any] | None
    peer_name: str
    why_no_peer: str


@dataclasses.dataclass(frozen=True)
class AttentionCase:
    """Attention of tensors [batch, length, heads, head_dim]."""

    batch: int
    length: int
    heads: int
    head_dim: int
    kv_heads: int
    kv_length: int
    dtype: str
    causal: bool
    window: int | None  # keys before the diagonal one that a query sees
    head_dim_v: int = 0  # of v and out; 0: head_dim

    op = "flash_attention"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtype of the tensors."""
        return (self.dtype,)

    @property
    def value_dim(self) -> int:
        """The head dim of v and out."""
        return self.head_dim_v or self.head_dim

    def __str__(self) -> str:
        text = f"{self.batch} x {self.length} x {self.heads} x {self.head_dim}"
        if self.value_dim != self.head_dim:
            text += f", values of {self.value_dim}"
        if self.kv_length != self.length:
            text += f", {self.kv_length} keys"
        if self.kv_heads != self.heads:
            text += f", {self.kv_heads} KV heads"
        if self.causal:
            text += ", causal"
        return text if self.window is None else f"{text}, window {self.window}"

    def options(self) -> dict[str, Any]:
        """The keywords of jit.flash_attention."""
        window = {} if self.window is None else {"window": (self.window, 0)}
        return {"causal": self.causal, **window}

    def flops(self) -> int:
        """The operations of both products, without masked pairs."""
        dims = self.head_dim + self.value_dim
        return 2 * self.batch * self.heads * dims * self._pairs()

    def bytes(self) -> int:
        """The bytes of q, k, v and the output, each counted once."""
        rows = self.length * self.heads + self.kv_length * self.kv_heads
        return self.batch * rows * (self.head_dim + self.value_dim) * bytes_of(self.dtype)

    def _pairs(self) -> int:
        # The diagonal ends in the corner at the bottom right; a window hides what is above it too.
        if not self.causal and self.window is None:
            return self.length * self.kv_length
        total = 0
        for row in range(self.length):
            last = row + self.kv_length - self.length
            first = 0 if self.window is None else max(0, last - self.window)
            total += max(0, last - first + 1)
        return total

    def tensors(self, gpu: Any) -> tuple[Any, Any, Any, Any]:
        """q, k, v and out on the GPU."""
        queries = (self.batch, self.length, self.heads)
        keys = (self.batch, self.kv_length, self.kv_heads)
        return (
            gpu.random((*queries, self.head_dim), self.dtype),
            gpu.random((*keys, self.head_dim), self.dtype),
            gpu.random((*keys, self.value_dim), self.dtype),
            gpu.empty((*queries, self.value_dim), self.dtype),
        )

    def prepare(self, gpu: Any) -> Calls:
        """Allocates the tensors on the GPU and returns the calls."""
        q, k, v, out = self.tensors(gpu)
        options = self.options()

        def call() -> Any:
            return jit.flash_attention(q, k, v, out=out, **options)

        reason = self._why_no_sdpa(gpu)
        peer = None if reason else self._sdpa(gpu.torch, q, k, v)
        return Calls(call, peer, "PyTorch SDPA", reason)

    def _why_no_sdpa(self, gpu: Any) -> str:
        if gpu.torch is None:
            return "PyTorch is not here"
        if self.causal and self.kv_length < self.length:
            return "SDPA makes NaN of rows without keys"
        return "" if self.window is None else "SDPA has no windows"

    def _sdpa(self, torch: Any, q: Any, k: Any, v: Any) -> Callable[[], Any]:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        options: dict[str, Any] = {"enable_gqa": True} if self.kv_heads != self.heads else {}
        # SDPA's is_causal is aligned top-left, while a single query must see every key.
        if self.causal and self.length == self.kv_length:
            options["is_causal"] = True
        needs_bias = self.causal and 1 < self.length != self.kv_length
        sdpa = torch.nn.functional.scaled_dot_product_attention

        def call() -> Any:
            if needs_bias and "attn_mask" not in options:
                from torch.nn.attention.bias import causal_lower_right

                options["attn_mask"] = causal_lower_right(self.length, self.kv_length)
            return sdpa(q, k, v, **options).transpose(1, 2)

        return call


@dataclasses.dataclass(frozen=True)
class GemmCase:
    """out[m, n] = a[m, k] b[k, n]."""

    shape: Shape
    kind: Kind

    op = "gemm"

    def __str__(self) -> str:
        return f"{self.shape}, {self.kind.layout}"

    @property
    def dtype(self) -> str:
        """The dtype of a and b."""
        return self.kind.dtype

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtype of the tensors."""
        return (self.kind.dtype, self.kind.out_dtype)

    def flops(self) -> int:
        """The operations: a product and a sum for each element and step of k."""
        return 2 * self.shape.m * self.shape.n * self.shape.k

    def bytes(self) -> int:
        """The bytes of a, b and the output, each counted once."""
        m, n, k = self.shape.m, self.shape.n, self.shape.k
        return (m + n) * k * bytes_of(self.dtype) + m * n * bytes_of(self.kind.out_dtype)

    def prepare(self, gpu: Any) -> Calls:
        """Allocates the tensors on the GPU and returns the calls."""
        a, b = operands(self.kind, self.shape, gpu)
        out = gpu.empty((self.shape.m, self.shape.n), self.kind.out_dtype)

        def call() -> Any:
            return jit.gemm(a, b, out=out, **self.kind.options())

        reason = ""
        if self.dtype.startswith("float8") or self.kind.out_dtype != self.dtype:
            reason = "torch.matmul has no such product"
        if gpu.torch is None:
            reason = "PyTorch is not here"
        peer = None if reason else self._matmul(gpu.torch, a, b)
        return Calls(call, peer, "PyTorch matmul", reason)

    def _matmul(self, torch: Any, a: Any, b: Any) -> Callable[[], Any]:
        result = torch.empty((self.shape.m, self.shape.n), device=a.device, dtype=a.dtype)
        if a.dtype == torch.float32:
            torch.backends.cuda.matmul.allow_tf32 = True  # as Kiln computes it
        return lambda: torch.matmul(a, b, out=result)
