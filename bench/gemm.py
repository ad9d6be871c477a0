"""GEMM beside torch.matmul (cuBLAS), interleaved in one process, results checked first."""

import argparse

import torch
from kiln import jit
from timing import device_times, machine, relative_error, save, table

NAMES = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "tf32"}
FULL = [
    (8192, 8192, 8192, torch.bfloat16),
    (4096, 4096, 4096, torch.bfloat16),
    (2048, 2048, 2048, torch.bfloat16),
    (4096, 28672, 8192, torch.bfloat16),
    (1024, 4096, 4096, torch.bfloat16),
    (128, 4096, 4096, torch.bfloat16),
    (64, 28672, 8192, torch.bfloat16),
    (16, 4096, 14336, torch.bfloat16),
    (1, 4096, 4096, torch.bfloat16),
    (4095, 4097, 4099, torch.bfloat16),
    (8192, 8192, 8192, torch.float16),
    (4096, 4096, 4096, torch.float32),
]
SHORT = [FULL[i] for i in (1, 4, 5, 7, 8, 11)]


def measure(m, n, k, dtype):
    generator = torch.Generator(device="cuda").manual_seed(1)
    a = torch.randn(m, k, device="cuda", generator=generator).to(dtype)
    b = torch.randn(n, k, device="cuda", generator=generator).to(dtype)
    precision = "tf32" if dtype == torch.float32 else None
    out = torch.full([m, n], float("nan"), device="cuda", dtype=dtype)
    jit.gemm(a, b.mT, out=out, precision=precision)
    error = relative_error(out, torch.matmul(a, b.mT))
    assert error < 0.01, f"{m}x{n}x{k} {dtype}: differs from cuBLAS by {error:.3g}"
    peers = torch.empty_like(out)
    times = device_times({
        "kiln": lambda: jit.gemm(a, b.mT, out=out, precision=precision),
        "cuBLAS": lambda: torch.matmul(a, b.mT, out=peers),
    })  # fmt: skip
    return times, error


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few shapes, under a minute")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    rows, results = [], []
    for m, n, k, dtype in SHORT if options.short else FULL:
        times, error = measure(m, n, k, dtype)
        name = f"{m}x{n}x{k} {NAMES[dtype]}"
        rate = 2 * m * n * k / times["kiln"] / 1e9
        moved = (m * k + n * k + m * n) * dtype.itemsize / times["kiln"] / 1e6
        ratio = times["cuBLAS"] / times["kiln"]
        rows.append([name, times["kiln"] * 1e3, rate, moved, ratio])
        results.append({"shape": name, "milliseconds": times, "error": error})
    path = save("gemm", {"machine": machine(), "results": results})
    print(f"{machine()}\nwritten to {path}\n")
    print(table(["A[M,K] B[N,K]^T", "us", "TFLOP/s", "GB/s", "x cuBLAS"], rows))


if __name__ == "__main__":
    main()
