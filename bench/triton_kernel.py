"""A Triton kernel that does almost nothing, with as many arguments as an attention call has."""

import triton
import triton.language as tl


@triton.jit
def trivial(q, k, v, out, s0, s1, s2, s3, s4, s5, s6, s7, s8, scale, BLOCK: tl.constexpr):
    tl.store(out, tl.load(q) * scale)


def launcher(q, k, v, out):
    strides = [x for tensor in (q, k, v) for x in tensor.stride()[:3]]
    return lambda: trivial[(1,)](q, k, v, out, *strides, 0.125, BLOCK=64)
