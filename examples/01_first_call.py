"""The first call of a kind compiles (or reads the disk); every later one only launches."""

import time

import kiln
import torch
from kiln import jit

q, k, v = torch.randn(3, 2, 1024, 8, 128, device="cuda", dtype=torch.float16)


def timed(call):
    torch.cuda.synchronize()
    start = time.perf_counter()
    out = call()
    torch.cuda.synchronize()
    return out, (time.perf_counter() - start) * 1e3


_, first = timed(lambda: jit.flash_attention(q, k, v, causal=True))
stats = kiln.stats()
out, warm = timed(lambda: jit.flash_attention(q, k, v, causal=True))
# Another batch size and other lengths are the same kernel.
_, other = timed(lambda: jit.flash_attention(q[:1, :77], k[:1], v[:1], causal=True))

reference = torch.nn.functional.scaled_dot_product_attention(
    *(x.transpose(1, 2) for x in (q, k, v)), is_causal=True
).transpose(1, 2)
torch.testing.assert_close(out, reference, rtol=1e-2, atol=2e-3)

origin = "compiled" if stats["compiles"] else "read from the disk"
print(f"first call  {first:8.2f} ms, {origin}")
print(f"second call {warm:8.2f} ms")
print(f"other sizes {other:8.2f} ms")
print("ok")
