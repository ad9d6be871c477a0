// Floating-point formats: exact widening, and narrowing with one rounding in every mode.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kiln::runtime::emulator {

enum class Rounding : std::uint8_t {
  rn,   // to nearest, ties to even
  rna,  // to nearest, ties away from zero
  rz,   // toward zero
  rm,   // toward minus infinity
  rp    // toward plus infinity
};

// What the hardware writes for any NaN result.
inline constexpr std::uint32_t kNan32 = 0x7fffffffu;
inline constexpr std::uint16_t kNan16 = 0x7fff;  // f16 and bf16
inline constexpr std::uint8_t kNan8 = 0x7f;      // e4m3 and e5m2

// Every NaN becomes the hardware's; all else is left alone.
inline float canonical(float x) { return x != x ? std::bit_cast<float>(kNan32) : x; }

// .ftz: subnormals become zero of the same sign.
inline float flush(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : x;
}
// .sat: to [0, 1]; NaN becomes +0, and so does -0.
inline float saturate(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline double saturate(double x) { return x > 0 ? (x < 1 ? x : 1.0) : 0.0; }

// Widening is exact. Signalling NaNs and payloads are kept for f16 and bf16.
inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
inline float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = std::uint32_t{bits} & 0x7fffu;
  // The exponent is rebiased by a product, which normalises subnormals too; infinities and NaNs
  // need the full exponent.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t special = (magnitude << 13) | 0x7f800000u;
  const std::uint32_t value = magnitude >= 0x7c00u ? special : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(value | sign);
}
float e4m3_to_f32(std::uint8_t bits);
float e5m2_to_f32(std::uint8_t bits);

// How a value is narrowed. satfinite: overflow and infinities become the largest finite value.
// relu: negative values (and -0) become +0. NaN becomes the canonical NaN in any case.
struct Narrowing {
  Rounding rounding = Rounding::rn;
  bool satfinite = false;
  bool relu = false;
};

// The usual case, to nearest even; fast and vectorisable.
inline std::uint16_t f32_to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>(x != x ? kNan16 : rounded);
}
inline std::uint16_t f32_to_f16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  // Normal results: rebias and round; a carry out of the mantissa moves the exponent as it should.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal results: adding 0.5 aligns the ulp to 2^-24, and the addition rounds.
  const std::uint32_t tiny =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  std::uint32_t result = magnitude < 0x38800000u ? tiny : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // 65520 and more round to infinity
  return static_cast<std::uint16_t>(magnitude > 0x7f800000u ? kNan16 : result | sign);
}

// One rounding from the source's exact value. An f32 widens to double exactly.
float f64_to_f32(double x, Rounding rounding);  // NaN: canonical
std::uint16_t f64_to_f16(double x, Narrowing how = {});
std::uint16_t f64_to_bf16(double x, Narrowing how = {});
// cvt to the 8-bit formats is always .satfinite; without it e5m2 has infinities and e4m3 gives NaN.
std::uint8_t f64_to_e4m3(double x, Narrowing how = {.satfinite = true});
std::uint8_t f64_to_e5m2(double x, Narrowing how = {.satfinite = true});
// In an f32's layout, low 13 bits zero.
std::uint32_t f64_to_tf32(double x, Narrowing how = {.rounding = Rounding::rna});

// Of integers, in every mode.
float integer_to_f32(std::uint64_t magnitude, bool negative, Rounding rounding);
double integer_to_f64(std::uint64_t magnitude, bool negative, Rounding rounding);
std::uint16_t integer_to_f16(std::uint64_t magnitude, bool negative, Rounding rounding);
std::uint16_t integer_to_bf16(std::uint64_t magnitude, bool negative, Rounding rounding);

// x + y rounded to odd: what is not exact gets the one of its two neighbours whose lowest bit is
// set. Rounding that to a format of at least two bits less, in any mode, rounds x + y once (Boldo
// and Melquiond, "Emulation of FMA and correctly rounded sums"). No overflow may happen. Must not
// be compiled with contraction of x * y + z.
inline double odd_sum(double x, double y) {
  const double sum = x + y;
  const double part = sum - x;
  const double error = (x - (sum - part)) + (y - part);  // NaN where something is not finite
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  const std::uint64_t step = (std::fabs(error) > 0 ? 1u : 0u) & ~bits;
  const std::uint64_t down = (std::bit_cast<std::uint64_t>(error) ^ bits) >> 63;  // toward zero
  return std::bit_cast<double>(bits + step - 2 * (step & down));
}
inline float odd_sum(float x, float y) {
  const float sum = x + y;
  const float part = sum - x;
  const float error = (x - (sum - part)) + (y - part);
  const auto bits = std::bit_cast<std::uint32_t>(sum);
  const std::uint32_t step = (std::fabs(error) > 0 ? 1u : 0u) & ~bits;
  const std::uint32_t down = (std::bit_cast<std::uint32_t>(error) ^ bits) >> 31;
  return std::bit_cast<float>(bits + step - 2 * (step & down));
}
// A double to a float, rounded to odd.
inline float odd_float(double x) {
  const auto near = static_cast<float>(x);
  const auto bits = std::bit_cast<std::uint32_t>(near);
  const double error = x - near;  // exact, but for overflow: then near moves toward x all the same
  const std::uint32_t step = (std::fabs(error) > 0 ? 1u : 0u) & ~bits;
  const auto error_sign = static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(error) >> 63);
  const std::uint32_t down = error_sign ^ (bits >> 31);
  return std::bit_cast<float>(bits + step - 2 * (step & down));
}

// a * b + c in one rounding. The product of two floats is exact in double. (std::fma is a slow call
// in builds for processors without the instruction.)
inline float fma_rn(float a, float b, float c) {
  return static_cast<float>(odd_sum(static_cast<double>(a) * b, static_cast<double>(c)));
}

}  // namespace kiln::runtime::emulator
