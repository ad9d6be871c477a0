"""A GEMM epilogue as a C++ expression: what happens to each element before it is rounded."""

import kiln
import torch
from kiln import jit

device = "cuda" if torch.cuda.is_available() else "cpu"
a = torch.randn(80, 128, device=device, dtype=torch.float16)
b = torch.randn(128, 144, device=device, dtype=torch.float16) / 128**0.5
bias, residual = torch.randn(144, device=device), torch.randn(80, 144, device=device)
product = a.float() @ b.float()


def check(name, ours, want):
    error = (ours - want).abs().max().item()
    assert error < 2e-5, f"{name}: the largest error is {error}"
    print(f"{name}: largest error {error:.1e}")


# The names: acc, the product in float32 (times alpha and the scales); bias and residual where they
# are given; row, col, batch, m and n. Outputs here are float32, so that nothing is rounded away.
leaky = "acc + bias > 0.0f ? acc + bias : 0.1f * (acc + bias)"
ours = jit.gemm(a, b, bias=bias, epilogue=leaky, out_dtype=torch.float32)
check("leaky relu", ours, torch.nn.functional.leaky_relu(product + bias, 0.1))

upper = "col >= row ? acc * residual : 0.0f"
ours = jit.gemm(a, b, residual=residual, epilogue=upper, out_dtype=torch.float32)
check("upper triangle of a gated product", ours, torch.triu(product * residual))

# Scalars and tensors of your own: other values run the same kernel. Outputs may be of 8 bits.
scale = torch.rand(144, device=device) * 20
options = dict(epilogue="acc * scale[col] + shift", tensors={"scale": scale})
ours = jit.gemm(a, b, params={"shift": 0.5}, out_dtype=torch.float32, **options)
check("a scale for each column", ours / 20, (product * scale + 0.5) / 20)
quantized = jit.gemm(a, b, params={"shift": -0.5}, out_dtype=torch.int8, **options)
beyond = (quantized - (product * scale - 0.5).clamp(-128, 127)).abs() - 0.5
check("rounded to int8", beyond.clamp(min=0) / 20, 0)

# A mistake is reported in the expression's own words.
try:
    jit.gemm(a, b, epilogue="acc + biass")
except kiln.CompileError as error:
    line = next(line for line in error.log.splitlines() if "biass" in line)
    print(f"refused: {line}")
else:
    raise AssertionError("an expression with an unknown name compiled")
print("ok: the expressions agree with PyTorch")
