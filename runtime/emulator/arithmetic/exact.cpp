#include "runtime/emulator/arithmetic/exact.h"

#include <cmath>
#include <utility>

namespace kiln::runtime::emulator {
namespace {

using Number = Exact<Wide>;

Number widened(double x) {
  const auto [negative, exponent, magnitude] = exact_of(x);
  return {negative, exponent, magnitude};
}

// The bits of `format`, one of f32's or f64's exponents, as a double.
double as_double(const Format& format, std::uint64_t bits) {
  return format.exponent_bits == kF64.exponent_bits
             ? std::bit_cast<double>(bits << (kF64.mantissa_bits - format.mantissa_bits))
             : std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

double rounded(const Format& format, const Number& value, Rounding mode) {
  return as_double(format, round_to(format, value, mode));
}

// The highest bit to bit 124: room for a carry above, and sticky bits below the 106 of a product.
Number normalised(Number x) {
  const int shift = 125 - width(x.magnitude);
  x.magnitude <<= shift;
  x.exponent -= shift;
  return x;
}

Wide shifted_sticky(Wide x, int by) {
  if (by == 0) return x;
  if (by >= 127) return x != 0;
  return (x >> by) | ((x & ((Wide{1} << by) - 1)) != 0 ? 1 : 0);
}

// IEEE 754 §6.3: an exact zero of operands of unlike signs is +0, and -0 when rounding down.
Number sum(const Number& a, const Number& b, Rounding mode) {
  const bool like = a.negative == b.negative;
  const bool zero_sign = like ? a.negative : mode == Rounding::rm;
  if (a.magnitude == 0 && b.magnitude == 0) return {zero_sign, 0, 0};
  if (a.magnitude == 0) return b;
  if (b.magnitude == 0) return a;
  Number x = normalised(a), y = normalised(b);
  if (x.exponent < y.exponent) std::swap(x, y);
  y.magnitude = shifted_sticky(y.magnitude, x.exponent - y.exponent);
  if (like) return {x.negative, x.exponent, x.magnitude + y.magnitude};
  if (x.magnitude == y.magnitude) return {zero_sign, 0, 0};
  if (x.magnitude > y.magnitude) return {x.negative, x.exponent, x.magnitude - y.magnitude};
  return {y.negative, x.exponent, y.magnitude - x.magnitude};
}

Number product(double a, double b) {
  const Number x = widened(a), y = widened(b);
  return {x.negative != y.negative, x.exponent + y.exponent, x.magnitude * y.magnitude};
}

bool finite(double x) { return std::isfinite(x); }

}  // namespace

// What is not finite follows from the same operation in double, where it is exact.
double exact_add(const Format& format, double a, double b, Rounding mode) {
  if (!finite(a) || !finite(b)) return a + b;
  return rounded(format, sum(widened(a), widened(b), mode), mode);
}

double exact_mul(const Format& format, double a, double b, Rounding mode) {
  if (!finite(a) || !finite(b)) return a * b;
  return rounded(format, product(a, b), mode);
}

double exact_fma(const Format& format, double a, double b, double c, Rounding mode) {
  if (!finite(a) || !finite(b)) return a * b + c;
  if (!finite(c)) return c;
  return rounded(format, sum(product(a, b), widened(c), mode), mode);
}

double exact_div(const Format& format, double a, double b, Rounding mode) {
  if (!finite(a) || !finite(b) || a == 0 || b == 0) return a / b;
  const Number x = normalised(widened(a)), y = widened(b);
  // The divisor as an odd or short number keeps at least 125 - 53 = 72 bits of quotient.
  const Wide quotient = x.magnitude / y.magnitude;
  const bool inexact = quotient * y.magnitude != x.magnitude;
  const Number value{x.negative != y.negative, x.exponent - y.exponent - 1,
                     (quotient << 1) | (inexact ? 1 : 0)};
  return rounded(format, value, mode);
}

double exact_sqrt(const Format& format, double a, Rounding mode) {
  if (!finite(a) || a <= 0) return std::sqrt(a);
  Number x = normalised(widened(a));
  if (x.exponent & 1) {
    x.magnitude <<= 1;
    --x.exponent;
  }
  Wide root = 0;
  for (int bit = 62; bit >= 0; --bit) {
    const Wide next = root | (Wide{1} << bit);
    if (next * next <= x.magnitude) root = next;
  }
  const bool inexact = root * root != x.magnitude;
  return rounded(format, {false, x.exponent / 2 - 1, (root << 1) | (inexact ? 1 : 0)}, mode);
}

}  // namespace kiln::runtime::emulator
