"""Reading a kernel: which one a call gets and why, and what it is made of. Nothing is launched."""

import kiln
import numpy as np

ARCH = "sm_90a"  # named, so that the answers are an H200's on every machine
KEYS = ("config", "path", "registers", "dynamic_shared_bytes", "spill_bytes", "threads")


def read(op, *tensors, **options):
    """The kernel of this call, with what `kiln inspect` says of it."""
    with kiln.device(f"emulator:{ARCH}"):
        call = kiln.explain(op, *tensors, **options)
    (kernel,) = kiln.inspect(call["spec"], ARCH)  # the call's spec names one row of the tiles
    assert kernel["key"] == call["key"], "the call would run another kernel"
    assert kernel["spill_bytes"] == 0, "registers are spilled: the tile is too large"
    print(kernel["what"])
    for key in KEYS:
        print(f"  {key:21}{kernel[key]}")
    for reason in kernel["why"]:
        print(f"  why: {reason}")
    return kernel


q = np.zeros((1, 4096, 8, 64), np.float16)
attention = read("flash_attention", q, q, q, causal=True)
assert attention["path"] == ARCH and "wgmma.mma_async" in attention["ptx"]

few, many = np.zeros((16, 4096), np.float16), np.zeros((4096, 4096), np.float16)
weight = np.zeros((512, 4096), np.float16).T
decode, prefill = read("gemm", few, weight), read("gemm", many, weight)
assert {decode["path"], prefill["path"]} == {ARCH}, "the GEMM has no path of its own"
assert decode["config"] != prefill["config"], "16 rows and 4096 rows got one tile"

# The machine's own instructions, counted: what the PTX of the same compile says.
wgmma = prefill["ptx"].count("wgmma.mma_async")
copies = prefill["ptx"].count("cp.async.bulk.tensor")
assert wgmma > 0 and copies > 0
print(f"  in its PTX: {wgmma} wgmma, {copies} bulk tensor copies")

# The same from a shell, for every row of the table:
#   kiln inspect flash_attention --head-dim 64 --dtype float16 --causal --arch sm_90a
print("ok: three kernels, none spills")
