"""A linear layer in one kernel: product, bias and activation; then a gated one with a residual."""

import torch
from kiln import jit

device = "cuda" if torch.cuda.is_available() else "cpu"
tokens, width, hidden = 96, 128, 192
x = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
weight = torch.randn(hidden, width, device=device, dtype=torch.bfloat16) / width**0.5
bias = torch.randn(hidden, device=device)


def check(name, ours, want):
    error = ((ours.float() - want).abs().max() / want.abs().max()).item()
    assert error < 1e-2, f"{name}: the relative error is {error}"  # bfloat16 keeps 8 bits
    print(f"{name}: relative error {error:.1e}")


# The weight is [out, in], as nn.Linear stores it; its transposed view is not copied.
ours = jit.gemm(x, weight.t(), bias=bias, activation="gelu")
linear = x.float() @ weight.float().t() + bias
check("bias + gelu", ours, torch.nn.functional.gelu(linear))

# SwiGLU: the gates are the first half of the columns. The product never reaches memory whole.
residual = torch.randn(tokens, hidden // 2, device=device, dtype=torch.bfloat16)
ours = jit.gemm(x, weight.t(), bias=bias, activation="swiglu", residual=residual)
gate, up = linear.chunk(2, dim=1)
check("bias + swiglu + residual", ours, torch.nn.functional.silu(gate) * up + residual.float())

# Factors of rows and columns belong to the epilogue as well, and are read on the device.
rows = torch.rand(tokens, device=device)
columns = torch.rand(hidden, device=device)
ours = jit.gemm(x, weight.t(), scale_a=rows, scale_b=columns, out_dtype=torch.float32)
check("scales", ours, x.float() @ weight.float().t() * rows[:, None] * columns)
print("ok: all epilogues agree with float32")
