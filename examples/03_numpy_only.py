"""NumPy alone: a transformer's attention block without a framework, on arrays in host memory."""

import numpy as np
from kiln import jit

length, heads, kv_heads, dim = 128, 4, 2, 64
width = heads * dim
random = np.random.default_rng(0)


def weight(rows, columns):
    return (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float16)


x = random.standard_normal((length, width)).astype(np.float16)
to_q, to_kv, to_out = weight(width, width), weight(width, 2 * kv_heads * dim), weight(width, width)

# Three products and one attention. Views cost nothing: k and v are halves of one array.
q = jit.gemm(x, to_q).reshape(1, length, heads, dim)
kv = jit.gemm(x, to_kv).reshape(1, length, 2, kv_heads, dim)
attended = jit.flash_attention(q, kv[:, :, 0], kv[:, :, 1], causal=True)
out = jit.gemm(attended.reshape(length, width), to_out, residual=x)


def reference():
    """The same in float32, head by head."""
    x32 = x.astype(np.float32)
    q = (x32 @ to_q).reshape(length, heads, dim)
    kv = (x32 @ to_kv).reshape(length, 2, kv_heads, dim)
    attended = np.empty_like(q)
    for head in range(heads):
        of = head * kv_heads // heads  # grouped queries: two heads share keys and values
        logits = q[:, head] @ kv[:, 0, of].T / np.sqrt(dim)
        logits[np.triu_indices(length, 1)] = -np.inf
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        attended[:, head] = weights / weights.sum(-1, keepdims=True) @ kv[:, 1, of]
    return attended.reshape(length, width) @ to_out + x32


want = reference()
error = np.linalg.norm(out - want) / np.linalg.norm(want)
assert out.dtype == np.float16 and error < 2e-3, f"the relative error is {error}"
print(f"ok: a NumPy array of {out.shape}, relative error {error:.1e}")
