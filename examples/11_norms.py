"""RMS norm that also updates the stream of residuals; layer norm with GELU. One kernel each."""

import torch
from kiln import jit

device = "cuda" if torch.cuda.is_available() else "cpu"
tokens, width = 48, 768


def check(name, ours, want, tolerance):
    error = ((ours.float() - want).abs().max() / want.abs().max()).item()
    assert error < tolerance, f"{name}: the relative error is {error}"
    print(f"{name}: relative error {error:.1e}")


# A block's output is added to the stream of residuals, and the sum is normed before it is rounded.
# residual_out may be the residual itself: the stream stays where it is.
output = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
stream = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
weight = torch.rand(width, device=device) + 0.5  # of any of the three dtypes
total = output.float() + stream.float()
normed = jit.rms_norm(output, weight, eps=1e-5, residual=stream, residual_out=stream)
want = torch.nn.functional.rms_norm(total, (width,), weight, eps=1e-5)
check("rms_norm of a sum", normed, want, 1e-2)  # bfloat16 keeps 8 bits
check("the stream", stream, total, 1e-2)

# Gemma keeps its weights around 0.
gemma = jit.rms_norm(output, weight - 1, weight_offset=1.0)
check("weight_offset", gemma, torch.nn.functional.rms_norm(output.float(), (width,), weight), 1e-2)

# Layer norm, GELU and another dtype for the next product, of a view whose rows are further apart.
wide = torch.randn(tokens, 2 * width, device=device)
x, bias = wide[:, :width], torch.randn(width, device=device)
ours = jit.layer_norm(x, weight, bias, activation="gelu", out_dtype=torch.float16)
plain = torch.nn.functional.layer_norm(x, (width,), weight, bias)
check("layer_norm + gelu", ours, torch.nn.functional.gelu(plain), 2e-3)
print("ok: the norms agree with float32")
