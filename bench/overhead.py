"""Host time of a hot call from Python, beside a Triton launch and PyTorch's own, in one process.

Tiny problems, asynchronous, median over many loops; under no_grad, where inference runs, and once
with grad mode on, where PyTorch is asked of each tensor whether it requires grad.
"""

import torch
from kiln import jit
from timing import host_times, machine, save, table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton_kernel import launcher


@torch.no_grad()
def main():
    q, k, v = torch.randn(3, 1, 64, 2, 64, device="cuda", dtype=torch.bfloat16)
    out, lse = torch.empty_like(q), torch.empty(1, 2, 64, device="cuda")
    a, b = torch.randn(2, 64, 64, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(a)
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    expected = scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)
    difference = (jit.flash_attention(q, k, v, causal=True) - expected).abs().max().item()
    assert difference < 0.03, f"attention differs from PyTorch by {difference}"
    calls = {
        "kiln attention, out=": lambda: jit.flash_attention(q, k, v, causal=True, out=out),
        "kiln attention": lambda: jit.flash_attention(q, k, v, causal=True),
        "kiln attention, out= and lse=": lambda: jit.flash_attention(
            q, k, v, causal=True, out=out, lse=lse
        ),
        "kiln gemm, out=": lambda: jit.gemm(a, b, out=product),
        "kiln gemm": lambda: jit.gemm(a, b),
        "Triton launch": launcher(q, k, v, torch.empty_like(q)),
        "torch.matmul": lambda: torch.matmul(a, b),
        "torch.matmul, out=": lambda: torch.matmul(a, b, out=product),
        "torch.add": lambda: torch.add(a, b),
        "torch.empty_like": lambda: torch.empty_like(q),
    }
    times = host_times(calls)
    with torch.enable_grad():
        call = calls["kiln attention, out="]
        times |= host_times({"kiln attention, out=, grad mode on": call})
    for name, backend in {
        "SDPA FA2": SDPBackend.FLASH_ATTENTION,
        "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
    }.items():
        with sdpa_kernel([backend]):
            call = {name: lambda: scaled_dot_product_attention(*heads, is_causal=True)}
            times |= host_times(call)
    triton_time = times["Triton launch"]
    rows = [[name, micros, micros / triton_time] for name, micros in times.items()]
    path = save("overhead", {"machine": machine(), "microseconds": times})
    print(f"{machine()}\nwritten to {path}\n")
    print(table(["host time of a hot call", "us", "/ Triton"], rows))


if __name__ == "__main__":
    main()
