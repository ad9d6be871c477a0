"""Attention beside PyTorch's FA2 and cuDNN, interleaved in one process, results checked first.

16k tokens in all, heads x head_dim = 2048; then grouped heads and decode.
"""

import argparse
import dataclasses

import torch
from kiln import jit
from timing import device_times, machine, relative_error, save, table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

PEERS = {"FA2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


@dataclasses.dataclass(frozen=True)
class Shape:
    batch: int
    len_q: int
    len_kv: int
    heads: int
    heads_kv: int
    dim: int
    causal: bool
    dtype: torch.dtype = torch.bfloat16

    def __str__(self):
        ratio = "" if self.heads == self.heads_kv else f"/{self.heads_kv}"
        kind = "causal" if self.causal else "full"
        length = self.len_kv if self.len_q == self.len_kv else f"{self.len_q}x{self.len_kv}"
        return f"D{self.dim} {kind} B{self.batch} S{length} H{self.heads}{ratio}"

    @property
    def flops(self):
        whole = 4 * self.batch * self.heads * self.len_q * self.len_kv * self.dim
        return whole / 2 if self.causal else whole

    @property
    def cache_bytes(self):
        return 2 * self.batch * self.len_kv * self.heads_kv * self.dim * 2


def shapes(short):
    dims, lengths = ([64, 128], [1024, 8192]) if short else ([64, 128, 256], [512, 2048, 8192])
    for dim in dims:
        for causal in (False, True):
            for length in lengths:
                heads = 2048 // dim
                yield Shape(16384 // length, length, length, heads, heads, dim, causal)
    if not short:
        yield Shape(1, 16384, 16384, 16, 16, 128, False)
        yield Shape(1, 16384, 16384, 16, 16, 128, True)
    yield Shape(2, 8192, 8192, 32, 8, 128, True)
    for batch, length in [(64, 8192)] if short else [(1, 8192), (16, 8192), (64, 8192)]:
        yield Shape(batch, 1, length, 32, 8, 128, False)


def peer_calls(shape, q, k, v):
    """PyTorch's backends that serve this shape."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))

    def call(backend):
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(
                q, k, v, is_causal=shape.causal, enable_gqa=shape.heads != shape.heads_kv
            )

    calls = {}
    for name, backend in PEERS.items():
        try:
            call(backend)
        except RuntimeError as error:
            print(f"{shape}: {name} does not serve it: {str(error).splitlines()[0]}")
            continue
        calls[name] = lambda backend=backend: call(backend)
    return calls


def measure(shape):
    generator = torch.Generator(device="cuda").manual_seed(1)

    def randn(length, heads):
        return torch.randn(
            shape.batch, length, heads, shape.dim,
            device="cuda", dtype=shape.dtype, generator=generator,
        )  # fmt: skip

    q = randn(shape.len_q, shape.heads)
    k, v = randn(shape.len_kv, shape.heads_kv), randn(shape.len_kv, shape.heads_kv)
    out = torch.full_like(q, float("nan"))
    calls = peer_calls(shape, q, k, v)
    jit.flash_attention(q, k, v, causal=shape.causal, out=out)
    errors = {name: relative_error(out, call().transpose(1, 2)) for name, call in calls.items()}
    wrong = [f"{name} by {error:.3g}" for name, error in errors.items() if not error < 0.02]
    assert not wrong, f"{shape}: differs from {wrong}"
    calls["kiln"] = lambda: jit.flash_attention(q, k, v, causal=shape.causal, out=out)
    return device_times(calls), errors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few shapes, under a minute")
    options = parser.parse_args()
    rows, results = [], []
    for shape in shapes(options.short):
        times, errors = measure(shape)
        ours = times["kiln"]
        decode = shape.len_q == 1
        rate = shape.cache_bytes / ours / 1e6 if decode else shape.flops / ours / 1e9
        ratios = [times[name] / ours if name in times else None for name in PEERS]
        rows.append([shape, rate, "GB/s" if decode else "TFLOP/s", ours * 1e3, *ratios])
        results.append({"shape": str(shape), "milliseconds": times, "errors": errors})
    path = save("attention", {"machine": machine(), "results": results})
    print(f"{machine()}\nwritten to {path}\n")
    headers = ["bf16 attention", "kiln", "", "us", *(f"x {name}" for name in PEERS)]
    print(table(headers, rows))


if __name__ == "__main__":
    main()
