"""The second half of the demo where there is no GPU: attention and a matrix product of NumPy arrays
by the kernels that an H200 would get, on the emulated device, compared with plain fp32."""

import time

import kiln
import numpy as np
from kiln import jit


def attention(q, k, v):
    """Causal softmax(q k^T / sqrt(d)) v of [batch, length, heads, dim], in fp32."""
    q, k, v = (x.astype(np.float32).transpose(0, 2, 1, 3) for x in (q, k, v))
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
    logits += np.triu(np.full(logits.shape[-2:], -np.inf, np.float32), 1)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


def compare(name, ours, reference):
    ours()  # compiles
    start = time.perf_counter()
    got = ours().astype(np.float32)
    seconds = time.perf_counter() - start
    want = reference()
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    print(f"  {name}: {seconds:.2f} s, relative error {error:.1e} from fp32")
    assert error < 2e-3


def main():
    random = np.random.default_rng(0)
    q, k, v = random.standard_normal((3, 1, 512, 8, 128), np.float32).astype(np.float16)
    a, b = random.standard_normal((2, 512, 512), np.float32).astype(np.float16)
    print("\nNo GPU here: the templates run in fp16 on the emulated device (sm_90a, late schedule)")
    with kiln.device("emulator:sm_90a"):
        compare(
            "attention fp16 [1, 512, 8, 128] causal",
            lambda: jit.flash_attention(q, k, v, causal=True),
            lambda: attention(q, k, v),
        )
        compare(
            "gemm fp16 512 x 512 x 512",
            lambda: jit.gemm(a, b.T),
            lambda: a.astype(np.float32) @ b.T.astype(np.float32),
        )
    print("\nok: the kernels ran and their results are right.")
