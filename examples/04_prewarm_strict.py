"""A server's start: fill the cache ahead, then serve with compiling off."""

import os
import sys
import tempfile

cache = tempfile.TemporaryDirectory(prefix="kiln-prewarm-")
os.environ["KILN_CACHE_DIR"] = cache.name  # a deployment names a folder of its own
import kiln  # noqa: E402
import torch  # noqa: E402
from kiln import jit  # noqa: E402

SPECS = [
    {"op": "flash_attention", "dtype": "bfloat16", "head_dim": 64, "mask": "causal"},
    {"op": "gemm", "dtype": "bfloat16", "layout": "nt", "block_m": 64, "block_n": 64},
]


def show(done, total, what, outcome, seconds):
    print(f"  [{done}/{total}] {outcome} {what}, {seconds:.2f} s", file=sys.stderr)


# Ahead: needs neither tensors nor a GPU, once the architecture is named.
devices = kiln.diagnose()["devices"]
arch = "sm_" + devices[0]["compute_capability"].replace(".", "") if devices else "sm_90a"
report = kiln.prewarm(SPECS, arch, progress=show)
print(f"{arch}: {report['compiled']} compiled, {report['cached']} cached")
assert not report["failed"], report["failed"]
assert kiln.prewarm(SPECS, arch, check=True)["missing"] == 0

# Serving: what was prewarmed runs, at any batch size and length; the rest is refused.
kiln.set_jit("off")
kiln.reset_stats()
device = "cuda" if devices else "cpu"
q, k, v = torch.randn(3, 2, 100, 4, 64, device=device, dtype=torch.bfloat16)
out = jit.flash_attention(q, k, v, causal=True)
sdpa = torch.nn.functional.scaled_dot_product_attention
want = sdpa(*(x.float().transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
torch.testing.assert_close(out.float(), want, rtol=2e-2, atol=2e-2)
try:
    jit.flash_attention(q, k, v, causal=True, softcap=30.0)
except kiln.CompileDisabled as error:
    print(f"refused, as it should be; to prewarm: {error.spec}")
else:
    raise AssertionError("a kernel ran that was not prewarmed")
stats = kiln.stats()
assert stats["compiles"] == 0 and sum(stats["disk_hits"]) == 1
print("ok: served from the cache, nothing compiled")
