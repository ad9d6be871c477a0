"""The program of `make demo`: it compiles, caches, inspects and runs kernels without a GPU, too."""

import os
import tempfile
import time

cache = tempfile.TemporaryDirectory(prefix="kiln-demo-")
os.environ["KILN_CACHE_DIR"] = cache.name  # a fresh cache, so that the first time is cold
import kiln  # noqa: E402

SPECS = [
    {"op": "flash_attention", "head_dim": 128, "mask": "causal", "block_q": 128},
    {"op": "gemm", "layout": "nt", "block_m": 128, "block_n": 128, "stages": 3},
]
devices = kiln.diagnose()["devices"]
arch = "sm_" + devices[0]["compute_capability"].replace(".", "") if devices else "sm_90a"
print(f"Kiln {kiln.__version__}: attention and GEMM for {arch}, from templates to machine code\n")
for attempt in ("cold cache", "once more"):
    for kernel in kiln.prewarm(SPECS, arch)["kernels"]:
        seconds = f"{kernel['seconds']:7.3f} s"
        print(f"  {attempt}: {kernel['outcome']:8} {seconds}  {kernel['what']}")
for spec in SPECS:
    kernel = kiln.inspect(spec, arch)[0]
    print(f"  {spec['op']}: {kernel['registers']} registers a thread, "
          f"{kernel['dynamic_shared_bytes'] // 1024} KB of shared memory, "
          f"{kernel['spill_bytes']} bytes spilled")  # fmt: skip
if not devices:
    import demo_emulated

    raise SystemExit(demo_emulated.main())

import torch  # noqa: E402
from kiln import jit  # noqa: E402


def compare(name, ours, peers):
    error = (ours().double() - peers().double()).norm() / peers().double().norm()
    assert error < 0.01, f"{name}: relative difference {error:.3g} from PyTorch"
    milliseconds = []
    for call in (ours, peers):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            call()
        torch.cuda.synchronize()
        milliseconds.append((time.perf_counter() - start) / 20 * 1e3)
    kiln_ms, torch_ms = milliseconds
    print(f"  {name}: {kiln_ms:.3f} ms, PyTorch {torch_ms:.3f} ms, difference {error:.1e}")


q, k, v = torch.randn(3, 1, 4096, 16, 128, device="cuda", dtype=torch.bfloat16)
a, b = torch.randn(2, 4096, 4096, device="cuda", dtype=torch.bfloat16)
sdpa = torch.nn.functional.scaled_dot_product_attention
compare("attention", lambda: jit.flash_attention(q, k, v, causal=True), lambda: sdpa(
    *(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2))  # fmt: skip
compare("gemm", lambda: jit.gemm(a, b.mT), lambda: a @ b.mT)
print("\nok: the kernels ran and their results are right.")
