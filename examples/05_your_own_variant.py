"""An attention variant as C++ expressions, with run-time scalars and a tensor."""

import kiln
import torch
from kiln import jit

# `logit` is the scaled product; `bias` is the element of the tensor at this head, row and key.
variant = jit.Variant(
    "biased_window",
    params={"reach": "i32", "strength": "f32"},
    tensors={"bias": "f32[h, row, kv]"},
    logits="logit + strength * bias",
    mask="kv <= q && kv > q - reach",
)

device = "cuda" if torch.cuda.is_available() else "cpu"
length, heads = 200, 4
q, k, v = torch.randn(3, 1, length, heads, 64, device=device, dtype=torch.bfloat16)
# One bias for all heads: the expanded view has a stride of 0 and is not copied.
bias = torch.randn(1, length, length, device=device).expand(heads, length, length)


def reference(strength, reach):
    rows = torch.arange(length, device=device)
    distance = rows[:, None] - rows[None]
    mask = (strength * bias).masked_fill((distance < 0) | (distance >= reach), -torch.inf)
    q32, k32, v32 = (x.float().transpose(1, 2) for x in (q, k, v))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return sdpa(q32, k32, v32, attn_mask=mask[None]).transpose(1, 2)


for strength, reach in [(0.5, 10), (2.0, 64)]:
    out = jit.flash_attention(q, k, v, variant=variant(strength=strength, reach=reach, bias=bias))
    torch.testing.assert_close(out.float(), reference(strength, reach), rtol=2e-2, atol=2e-2)

# Other values, even another tensor, never compile again.
kernels = kiln.stats()["kernels_resident"]
assert kernels == 1, f"{kernels} kernels for one variant"
print("ok: one kernel served both, and agrees with PyTorch")
