"""Kiln in place of PyTorch's scaled_dot_product_attention, in a model that is not changed.

On a GPU, or on the emulated device where there is none. Also under torch.compile.
"""

import contextlib

import kiln
import torch
import torch.nn.functional as F
from kiln import jit


class Decoder(torch.nn.Module):
    """Two layers of causal attention with grouped queries, as most of today's models have."""

    def __init__(self, width=128, heads=8, heads_kv=2):
        super().__init__()
        self.dim, self.heads, self.heads_kv = width // heads, heads, heads_kv
        columns = (heads + 2 * heads_kv) * self.dim
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, columns) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            heads = layer(x).unflatten(-1, (-1, self.dim)).transpose(1, 2)
            q, k, v = heads.split((self.heads, self.heads_kv, self.heads_kv), dim=1)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + out.transpose(1, 2).flatten(2)
        return x


@contextlib.contextmanager
def kilns_attention():
    """Where PyTorch's function is called, Kiln's runs: the signatures are the same."""
    original = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = jit.scaled_dot_product_attention
    try:
        yield
    finally:
        F.scaled_dot_product_attention = original


device = "cuda" if torch.cuda.is_available() else "cpu"
model = Decoder().to(device, torch.bfloat16).eval()
x = torch.randn(2, 40, 128, device=device, dtype=torch.bfloat16)

with torch.no_grad():
    expected = model(x)
    with kilns_attention():
        out = model(x)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
        q = torch.empty(2, 8, 40, 16, device=device, dtype=torch.bfloat16)
        print(kiln.explain("scaled_dot_product_attention", q, q, q, is_causal=True)["what"])

for name, result in (("eager", out), ("compiled", compiled)):
    error = (result - expected).abs().max().item()
    print(f"{name}: differs from PyTorch's by at most {error:.4f}")
    assert error < 0.1, "more than the rounding of bfloat16"
print("ok: the model ran on Kiln's attention, eager and compiled")
