"""What the tensor cores make of a sum of products, an element at a time in exact integers: the
rules of runtime/emulator/matrix/product.h, written a second time. Finite numbers only."""

import numpy as np
from matrix_formats import FP8, decode

# Exponents of the smallest normal numbers: subnormals have them too.
LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}
NOTHING = -(10**6)  # the exponent of zero


def exponents(kind, values):
    exponent = np.frexp(values)[1].astype(np.int64) - 1
    return np.where(values == 0, NOTHING, np.maximum(exponent, LEAST[kind]))


def cut(values, bits):
    """Toward zero, to so many bits behind the leading one; f32's subnormals keep fewer."""
    exponent = np.maximum(np.frexp(values)[1] - 1, -126)
    return np.ldexp(np.trunc(np.ldexp(values, bits - exponent)), exponent - bits)


def one_sum(a, b, c, kinds, fraction, result):
    """a [m, k] and b [k, n] of numbers upon c; kinds of a, b and c. `result`: bits, or "f16"."""
    product = a[:, :, None] * b[None]  # exact in f64
    exponent = exponents(kinds[0], a)[:, :, None] + exponents(kinds[1], b)[None]
    exponent = np.where(product == 0, NOTHING, exponent).max(axis=1)
    top = np.maximum(np.maximum(exponent, exponents(kinds[2], c)), -133)
    scale = fraction - top
    total = np.trunc(np.ldexp(product, scale[:, None])).sum(axis=1) + np.trunc(np.ldexp(c, scale))
    total = np.ldexp(total, -scale)
    if result != "f16":
        return cut(total, result)
    with np.errstate(over="ignore"):
        return total.astype(np.float16).astype(np.float64)


def tensor_core_sum(a, b, c, kinds, accumulator, wgmma=False):
    """D of codes a [m, k], b [k, n] and numbers c, as f32."""
    fp8 = kinds[0] in FP8
    a, b = decode(kinds[0], a).astype(np.float64), decode(kinds[1], b).astype(np.float64)
    result = "f16" if accumulator == "f16" else 23
    kinds = (*kinds, accumulator)
    if wgmma or not fp8:
        if fp8 and accumulator == "f32":
            result = 13
        return one_sum(a, b, c, kinds, 13 if fp8 else 25, result).astype(np.float32)
    # sm_90 has f16's instructions do it: upon zero, the first and last two of every four in k.
    total = np.zeros_like(c)
    place = np.arange(a.shape[1]) % 4 // 2
    for half in range(2):
        chosen = place == half
        kinds = ("f16", "f16", accumulator)
        total = one_sum(a[:, chosen], b[chosen], total, kinds, 25, result)
    rounded = np.float16 if accumulator == "f16" else np.float32
    return (total.astype(rounded) + c.astype(rounded)).astype(np.float32)
