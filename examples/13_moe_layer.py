"""A layer of a mixture of experts: route, sort by experts, multiply, add up; and its FP8 inputs."""

import torch
from kiln import jit

device = "cuda" if torch.cuda.is_available() else "cpu"
tokens, width, hidden, num_experts, top_k = 24, 256, 128, 8, 2

x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
router = torch.randn(num_experts, width, device=device, dtype=torch.bfloat16) / 16
gate_up = torch.randn(num_experts, 2 * hidden, width, device=device, dtype=torch.bfloat16) / 16
down = torch.randn(num_experts, width, hidden, device=device, dtype=torch.bfloat16) / 11

logits = jit.gemm(x, router.t(), out_dtype="float32")
weights, experts = jit.moe_route(logits, top_k=top_k)
rows, offsets, inverse = jit.moe_permute(x, experts, num_experts=num_experts)

# Each expert has its rows side by side. They end where offsets says, which stays on the device.
active = jit.gemm(rows, gate_up.mT, offsets=offsets, activation="swiglu")
results = jit.gemm(active, down.mT, offsets=offsets)
out = jit.moe_unpermute(results, inverse, weights)

# The textbook, in float32.
scores = logits.softmax(-1)
best, chosen = scores.topk(top_k)
best = best / best.sum(-1, keepdim=True)
want = torch.zeros(tokens, width, device=device)
for k in range(top_k):
    gate, up = (gate_up.float()[chosen[:, k]] @ x.float().unsqueeze(-1)).squeeze(-1).chunk(2, -1)
    active = (torch.nn.functional.silu(gate) * up).unsqueeze(-1)
    want += best[:, k, None] * (down.float()[chosen[:, k]] @ active).squeeze(-1)
error = ((out.float() - want).abs().max() / want.abs().max()).item()
assert torch.equal(experts.long(), chosen) and error < 2e-2, error

# Rows for products of 8-bit floats: one scale for each 128 columns of a token, or for each token.
quantised, scale = jit.quantize(x, group=128)
again = quantised.float() * scale.repeat_interleave(128, 1)
error_8_bits = ((again - x.float()).abs().max() / x.float().abs().max()).item()
assert scale.shape == (tokens, width // 128) and error_8_bits < 0.04, error_8_bits
print(f"ok: {tokens} tokens over {num_experts} experts, relative error {error:.1e}")
