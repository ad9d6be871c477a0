"""Conversions between number formats by exact rational arithmetic: what cvt must give."""

import math
from fractions import Fraction

import numpy as np

# exponent bits, mantissa bits, bits of the hardware's NaN
FORMATS = {
    "e4m3": (4, 3, 0x7F),
    "e5m2": (5, 2, 0x7F),
    "f16": (5, 10, 0x7FFF),
    "bf16": (8, 7, 0x7FFF),
    "tf32": (8, 10, 0x7FFFE000),
    "f32": (8, 23, 0x7FFFFFFF),
    "f64": (11, 52, 0x7FF8000000000000),
}
STORED = {
    "e4m3": np.uint8,
    "e5m2": np.uint8,
    "f16": np.uint16,
    "bf16": np.uint16,
    "tf32": np.uint32,
    "f32": np.uint32,
    "f64": np.uint64,
}
FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def widen(bits, kind):
    """The value of one number's bits, as a Python float."""
    bits = int(bits)
    if kind in FLOATS:
        return float(np.array(bits, STORED[kind]).view(FLOATS[kind]))
    if kind == "bf16":
        return float(np.array(bits << 16, np.uint32).view(np.float32))
    exponent_bits, mantissa_bits, _ = FORMATS[kind]
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) & 1 else 1.0
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    if kind == "e4m3" and exponent == 15 and mantissa == 7:
        return math.nan
    if kind == "e5m2" and exponent == 31:
        return math.nan if mantissa else sign * math.inf
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)


def round_magnitude(quotient, negative, mode):
    """A non-negative rational to an integer."""
    whole = math.floor(quotient)
    rest = quotient - whole
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    elif mode == "rna":
        up = rest >= Fraction(1, 2)
    else:
        up = rest > 0 and ((mode == "rp" and not negative) or (mode == "rm" and negative))
    return whole + up


def overflow(kind, negative, mode, satfinite):
    """Bits of the magnitude beyond the largest finite number."""
    exponent_bits, mantissa_bits, _ = FORMATS[kind]
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    largest = 0x7E if kind == "e4m3" else infinity - 1
    if kind == "tf32":
        infinity, largest = infinity << 13, largest << 13
    toward_zero = mode == "rz" or (mode == "rm" and not negative) or (mode == "rp" and negative)
    return largest if satfinite or toward_zero else infinity


def narrow(value, kind, mode="rn", satfinite=False, relu=False, negative_zero=False):
    """Bits of a Python float, integer or Fraction in a format."""
    exponent_bits, mantissa_bits, nan = FORMATS[kind]
    width = 32 if kind == "tf32" else 1 + exponent_bits + mantissa_bits
    shift = 13 if kind == "tf32" else 0
    if isinstance(value, float) and math.isnan(value):
        return nan
    negative = value < 0 or (isinstance(value, float) and math.copysign(1, value) < 0)
    if negative and relu:
        return 0
    sign = (1 << (width - 1)) if negative else 0
    if isinstance(value, float) and math.isinf(value):
        largest = overflow(kind, negative, "rz", True)
        return sign | (largest if satfinite else overflow(kind, negative, "rn", False))
    magnitude = abs(Fraction(value))
    if magnitude == 0:
        return sign
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = max(floor_log2(magnitude), 1 - bias)
    whole = round_magnitude(magnitude / Fraction(2) ** (exponent - mantissa_bits), negative, mode)
    if whole >> (mantissa_bits + 1):
        whole, exponent = whole >> 1, exponent + 1
    field = exponent + bias if whole >> mantissa_bits else 0
    bits = (field << mantissa_bits) | (whole & ((1 << mantissa_bits) - 1))
    limit = overflow(kind, negative, "rz", True) >> shift
    if bits > limit or field >= (1 << exponent_bits):
        return sign | overflow(kind, negative, mode, satfinite)
    return sign | bits << shift


def floor_log2(magnitude):
    guess = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return guess if magnitude >= Fraction(2) ** guess else guess - 1


def to_integer(value, kind, mode, bits, signed, wide_nan):
    """A float to an integer, clamped. `wide_nan`: NaN gives the sign bit alone, else 0."""
    if math.isnan(value):
        return 1 << (bits - 1) if wide_nan else 0
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if math.isinf(value):
        whole = most if value > 0 else least
    else:
        whole = round_magnitude(abs(Fraction(value)), value < 0, mode)
        whole = -whole if value < 0 else whole
    return min(max(whole, least), most) & ((1 << bits) - 1)


def flush(bits):
    """Subnormals of f32 bits as zeros."""
    bits = np.asarray(bits, np.uint32)
    return np.where(bits & 0x7F800000 == 0, bits & np.uint32(0x80000000), bits).astype(np.uint32)


def array(function, values, dtype):
    return np.array([function(v) for v in values], dtype=dtype)
