"""GEMM with a fused epilogue: the built-in ones, and one written as an expression."""

import torch
from kiln import jit

x = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
weight = torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16) / 32
bias = torch.randn(2048, device="cuda")

# Linear + bias + activation in one kernel; the weight is used as it lies, [out, in].
hidden = jit.gemm(x, weight.mT, bias=bias, activation="gelu")
expected = torch.nn.functional.gelu(x.float() @ weight.float().mT + bias)
torch.testing.assert_close(hidden.float(), expected, rtol=2e-2, atol=2e-2)

# Any expression of acc, bias, residual, row, col and batch. A leaky ReLU, kept in float32:
leaky = jit.gemm(
    x,
    weight.mT,
    bias=bias,
    epilogue="acc + bias > 0.0f ? acc + bias : 0.1f * (acc + bias)",
    out_dtype=torch.float32,
)
expected = torch.nn.functional.leaky_relu(x.float() @ weight.float().mT + bias, 0.1)
torch.testing.assert_close(leaky, expected, rtol=1e-3, atol=1e-3)

print("ok: both epilogues agree with PyTorch")
