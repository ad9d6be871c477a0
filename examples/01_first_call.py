"""The first call of a kind compiles (or reads the disk); every later one only launches.

Like every example: on the GPU where there is one, else on the emulated device, in host memory.
"""

import time

import kiln
import torch
from kiln import jit

device = "cuda" if torch.cuda.is_available() else "cpu"
length = 1024 if device == "cuda" else 192
q, k, v = torch.randn(3, 2, length, 4, 64, device=device, dtype=torch.float16)


def timed(call):
    start = time.perf_counter()
    out = call()
    if device == "cuda":
        torch.cuda.synchronize()
    return out, (time.perf_counter() - start) * 1e3


out, first = timed(lambda: jit.flash_attention(q, k, v, causal=True))
compiles = kiln.stats()["compiles"]
_, second = timed(lambda: jit.flash_attention(q, k, v, causal=True))
# Another batch size and other lengths are the same kernel.
_, other = timed(lambda: jit.flash_attention(q[:1, :77], k[:1], v[:1], causal=True))
assert kiln.stats()["compiles"] == compiles, "a later call compiled"

sdpa = torch.nn.functional.scaled_dot_product_attention
want = sdpa(*(x.float().transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
error = (out.float() - want).abs().max().item()
assert error < 4e-3, f"the largest error is {error}"

print(f"first call  {first:8.2f} ms, {'compiled' if compiles else 'read from the disk'}")
print(f"second call {second:8.2f} ms")
print(f"other sizes {other:8.2f} ms")
print(f"ok: the largest error against float32 is {error:.1e}")
