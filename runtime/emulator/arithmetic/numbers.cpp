#include "runtime/emulator/arithmetic/numbers.h"

#include "runtime/emulator/arithmetic/exact.h"

namespace kiln::runtime::emulator {
namespace {

// Narrows to a format of up to 32 bits.
std::uint32_t narrow(const Format& format, double x, const Narrowing& how, std::uint32_t nan) {
  if (x != x) return nan;
  const bool negative = std::signbit(x);
  if (how.relu && negative) return 0;
  const auto sign = static_cast<std::uint32_t>(negative ? format.sign() : 0);
  const auto beyond = static_cast<std::uint32_t>(format.beyond());
  std::uint32_t bits =
      std::isinf(x) ? beyond | sign
                    : static_cast<std::uint32_t>(round_to(format, exact_of(x), how.rounding));
  if ((bits & ~static_cast<std::uint32_t>(format.sign())) >= beyond) {
    if (how.satfinite)
      bits = (beyond - 1) | sign;
    else if (!format.has_infinity)
      bits = nan;
  }
  return bits;
}

std::uint32_t of_integer(const Format& format, std::uint64_t magnitude, bool negative,
                         Rounding rounding) {
  return static_cast<std::uint32_t>(
      round_to(format, Exact<std::uint64_t>{negative && magnitude != 0, 0, magnitude}, rounding));
}

}  // namespace

float e4m3_to_f32(std::uint8_t bits) {
  const std::uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(kNan32);
  const float value = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return (bits & 0x80u) != 0 ? -value : value;
}

float e5m2_to_f32(std::uint8_t bits) {
  // An e5m2 is an f16 without its low 8 bits.
  return canonical(f16_to_f32(static_cast<std::uint16_t>(bits << 8)));
}

float f64_to_f32(double x, Rounding rounding) {
  return std::bit_cast<float>(narrow(kF32, x, {.rounding = rounding}, kNan32));
}

std::uint16_t f64_to_f16(double x, Narrowing how) {
  return static_cast<std::uint16_t>(narrow(kF16, x, how, kNan16));
}

std::uint16_t f64_to_bf16(double x, Narrowing how) {
  return static_cast<std::uint16_t>(narrow(kBf16, x, how, kNan16));
}

std::uint8_t f64_to_e4m3(double x, Narrowing how) {
  return static_cast<std::uint8_t>(narrow(kE4m3, x, how, kNan8));
}

std::uint8_t f64_to_e5m2(double x, Narrowing how) {
  return static_cast<std::uint8_t>(narrow(kE5m2, x, how, kNan8));
}

std::uint32_t f64_to_tf32(double x, Narrowing how) {
  // 1 + 8 + 10 bits at the top of the word. The canonical NaN keeps all its bits.
  if (x != x) return kNan32;
  return narrow(kTf32, x, how, 0) << 13;
}

float integer_to_f32(std::uint64_t magnitude, bool negative, Rounding rounding) {
  return std::bit_cast<float>(of_integer(kF32, magnitude, negative, rounding));
}

double integer_to_f64(std::uint64_t magnitude, bool negative, Rounding rounding) {
  return std::bit_cast<double>(
      round_to(kF64, Exact<std::uint64_t>{negative && magnitude != 0, 0, magnitude}, rounding));
}

std::uint16_t integer_to_f16(std::uint64_t magnitude, bool negative, Rounding rounding) {
  return static_cast<std::uint16_t>(of_integer(kF16, magnitude, negative, rounding));
}

std::uint16_t integer_to_bf16(std::uint64_t magnitude, bool negative, Rounding rounding) {
  return static_cast<std::uint16_t>(of_integer(kBf16, magnitude, negative, rounding));
}

}  // namespace kiln::runtime::emulator
