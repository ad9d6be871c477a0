#include "tests/emulator/kernel_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kiln::testing {
namespace {

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// IEEE binary16, by its definition: sign, 5 bits of exponent, 10 of fraction.
float half_value(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const auto fraction = static_cast<float>(bits & 1023);
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

// 8-bit floats of numbers alone, by their definition: sign, exponent, `fraction` bits.
float byte_value(std::uint32_t bits, int fraction) {
  const int bias = fraction == 3 ? 7 : 15,
            exponent = static_cast<int>(bits >> fraction & (fraction == 3 ? 15 : 31));
  const auto digits = static_cast<float>(bits & ((1u << fraction) - 1));
  const auto unit = static_cast<float>(1 << fraction);
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  return sign * std::ldexp(exponent == 0 ? digits : unit + digits,
                           std::max(exponent, 1) - bias - fraction);
}

}  // namespace

float value_at(const std::byte* at, DType dtype) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, std::min(sizeof bits, static_cast<std::size_t>(size_of(dtype))));
  if (dtype == DType::boolean) return bits != 0;
  if (dtype == DType::f16) return half_value(bits);
  if (dtype == DType::i8) return static_cast<std::int8_t>(bits);
  if (dtype == DType::i32) return static_cast<float>(static_cast<std::int32_t>(bits));
  if (dtype == DType::i64) return NAN;  // nobody reads these as numbers
  if (dtype == DType::f8_e4m3) return byte_value(bits, 3);
  if (dtype == DType::f8_e5m2) return byte_value(bits, 2);
  if (dtype == DType::f8_e8m0) return std::ldexp(1.0f, static_cast<int>(bits) - 127);
  return float_of(dtype == DType::bf16 ? bits << 16 : bits);
}

std::uint32_t random_bits(DType dtype, std::mt19937& random) {
  if (dtype == DType::boolean) return random() % 4 != 0;
  if (dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2) {
    const std::uint32_t sign_and_digits = random(), exponent = random() % 5;
    return dtype == DType::f8_e4m3 ? (sign_and_digits & 0x87) | (2 + exponent) << 3
                                   : (sign_and_digits & 0x83) | (10 + exponent) << 2;
  }
  if (dtype == DType::i8) return random() % 256;
  if (dtype == DType::f8_e8m0) return 122 + random() % 6;
  const int sixty_fourths = static_cast<int>(random() % 129) - 64;
  const float value = static_cast<float>(sixty_fourths) / 64;
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (dtype == DType::bf16) return bits >> 16;
  if (dtype != DType::f16) return bits;
  const std::uint32_t exponent = bits >> 23 & 0xff;
  if (exponent == 0) return bits >> 16;
  return (bits >> 16 & 0x8000) | (exponent - 112) << 10 | (bits >> 13 & 1023);
}

}  // namespace kiln::testing
