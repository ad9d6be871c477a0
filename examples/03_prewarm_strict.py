"""A server's start: fill the cache ahead, then run with compiling off. Needs no GPU to prewarm."""

import os
import sys
import tempfile

cache = tempfile.TemporaryDirectory(prefix="kiln-prewarm-")
os.environ["KILN_CACHE_DIR"] = cache.name
import kiln  # noqa: E402
from kiln import jit  # noqa: E402

SPECS = [
    {"op": "flash_attention", "dtype": "bfloat16", "head_dim": 64, "mask": "causal"},
    {"op": "gemm", "dtype": "bfloat16", "layout": "nt", "block_m": 64, "block_n": 64},
]


def show(done, total, what, outcome, seconds):
    print(f"  [{done}/{total}] {outcome} {what}, {seconds:.2f} s", file=sys.stderr)


devices = kiln.diagnose()["devices"]
arch = "sm_" + devices[0]["compute_capability"].replace(".", "") if devices else "sm_90a"
report = kiln.prewarm(SPECS, arch, progress=show)
print(f"{arch}: {report['compiled']} compiled, {report['cached']} cached")
assert not report["failed"], report["failed"]
assert kiln.prewarm(SPECS, arch, check=True)["missing"] == 0

kiln.set_jit("off")
kiln.reset_stats()
if not devices:
    print("ok: the cache is filled; serving from it needs a GPU")
    sys.exit()

import torch  # noqa: E402

q, k, v = torch.randn(3, 4, 300, 8, 64, device="cuda", dtype=torch.bfloat16)
jit.flash_attention(q, k, v, causal=True)  # on the disk: loads, compiles nothing
try:
    jit.flash_attention(q, k, v, causal=True, softcap=30.0)
except kiln.CompileDisabled as error:
    print(f"refused, as it should be; to prewarm: {error.spec}")
else:
    raise AssertionError("a kernel that nobody prewarmed ran")
print(f"ok: {kiln.stats()['compiles']} compiles of our own calls")
