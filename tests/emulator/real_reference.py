"""Floating-point arithmetic by rational numbers: an independent word on what an instruction must
give, in every format and rounding mode."""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction

NAN = "nan"


@dataclasses.dataclass(frozen=True)
class Format:
    bits: int
    mantissa: int

    @property
    def exponent_bits(self):
        return self.bits - 1 - self.mantissa

    @property
    def bias(self):
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self):
        return ((1 << self.exponent_bits) - 1) << self.mantissa

    @property
    def sign(self):
        return 1 << (self.bits - 1)


F16, BF16, F32, F64 = Format(16, 10), Format(16, 7), Format(32, 23), Format(64, 52)


@functools.cache
def decode(form, bits):
    """A Fraction, ±math.inf, NAN; -0 is told by is_negative."""
    magnitude = bits & (form.sign - 1)
    if magnitude > form.infinity:
        return NAN
    negative = bits >= form.sign
    if magnitude == form.infinity:
        return -math.inf if negative else math.inf
    exponent, fraction = divmod(magnitude, 1 << form.mantissa)
    if exponent:
        fraction += 1 << form.mantissa
    value = Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - form.bias - form.mantissa)
    return -value if negative else value


def is_negative(form, bits):
    return bits >= form.sign


def encode(form, value, mode="rn", zero_negative=False):
    """The bits of the exact `value` (what decode gives) rounded to the format. A mode ending in
    "ftz" flushes what is tiny: what, rounded without a smallest exponent, is not normal."""
    if value == NAN:
        return form.sign - 1
    if value == 0:
        return form.sign if zero_negative else 0
    negative = value < 0
    sign = form.sign if negative else 0
    if abs(value) == math.inf:
        return form.infinity | sign
    magnitude = abs(value)
    if mode.endswith("ftz"):
        mode, lift = mode[:2], form.bias // 2
        lifted = encode(form, value * 2**lift, mode) & (form.sign - 1)
        if lifted >> form.mantissa <= lift:
            return sign
    low, high = 0, form.infinity  # the largest number whose value is not above, by bisection
    while high - low > 1:
        middle = (low + high) // 2
        if decode(form, middle) <= magnitude:
            low = middle
        else:
            high = middle
    below = decode(form, low)
    if below == magnitude:
        return low | sign
    above = below + Fraction(2) ** (max(low >> form.mantissa, 1) - form.bias - form.mantissa)
    up = {"rz": False, "rp": not negative, "rm": negative}.get(mode)
    if up is None:
        distance = magnitude - below, above - magnitude
        up = distance[0] > distance[1] or (distance[0] == distance[1] and low % 2 == 1)
    return (low + up) | sign


def is_subnormal(form, bits):
    magnitude = bits & (form.sign - 1)
    return 0 < magnitude < (1 << form.mantissa)


def flush(form, bits):
    return bits & form.sign if is_subnormal(form, bits) else bits


def _product(form, a, b):
    x, y = decode(form, a), decode(form, b)
    negative = is_negative(form, a) != is_negative(form, b)
    if NAN in (x, y) or (0 in (x, y) and math.inf in (x, y, -x, -y)):
        return NAN, negative
    if math.inf in (abs(x), abs(y)):
        return (-math.inf if negative else math.inf), negative
    return x * y, negative


def _sum(x, x_negative, y, y_negative, mode):
    if NAN in (x, y):
        return NAN, False
    infinite = {value for value in (x, y) if abs(value) == math.inf}
    if infinite:
        return (NAN if len(infinite) == 2 else infinite.pop()), False
    return x + y, (x_negative if x_negative == y_negative else mode.startswith("rm"))


def fma(form, a, b, c, mode="rn"):
    product, negative = _product(form, a, b)
    value, zero = _sum(product, negative, decode(form, c), is_negative(form, c), mode)
    return encode(form, value, mode, zero)


def add(form, a, b, mode="rn"):
    x, y = decode(form, a), decode(form, b)
    value, zero = _sum(x, is_negative(form, a), y, is_negative(form, b), mode)
    return encode(form, value, mode, zero)


def sub(form, a, b, mode="rn"):
    return add(form, a, b ^ form.sign, mode)


def mul(form, a, b, mode="rn"):
    value, negative = _product(form, a, b)
    return encode(form, value, mode, negative)


def div(form, a, b, mode="rn"):
    x, y = decode(form, a), decode(form, b)
    negative = is_negative(form, a) != is_negative(form, b)
    if NAN in (x, y) or (x == 0 and y == 0) or (abs(x) == math.inf and abs(y) == math.inf):
        return encode(form, NAN)
    if abs(x) == math.inf or y == 0:
        return encode(form, -math.inf if negative else math.inf)
    if abs(y) == math.inf:
        return encode(form, 0, mode, negative)
    return encode(form, x / y, mode, negative)


def rcp(form, a, mode="rn"):
    return div(form, form.bias << form.mantissa, a, mode)


def sqrt(form, a, mode="rn"):
    x = decode(form, a)
    if x == NAN or x == 0 or x == math.inf:
        return encode(form, x, mode, is_negative(form, a))
    if x < 0:
        return encode(form, NAN)
    # 600 bits behind the point: far more than decide any rounding; a unit more when inexact.
    scaled = x * (1 << 1200)
    root = math.isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(root * root) == scaled
    return encode(form, Fraction(2 * root + (not exact), 1 << 601), mode)


def saturate(form, bits):
    value = decode(form, bits)
    if value == NAN or value <= 0:
        return 0
    return form.bias << form.mantissa if value >= 1 else bits


def relu(form, bits):
    value = decode(form, bits)
    return 0 if value != NAN and value <= 0 else bits
