// Finite numbers held exactly, and their one rounding to a format: the slow way that is right for
// every rounding mode. The usual mode has faster ways (numbers.h, arithmetic_f32.cpp).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "runtime/emulator/arithmetic/numbers.h"

namespace kiln::runtime::emulator {

__extension__ typedef unsigned __int128 Wide;
__extension__ typedef __int128 SignedWide;

// ± magnitude · 2^exponent. Where bits were lost, the lowest bit of the magnitude is set and stands
// far below what any rounding keeps ("sticky").
template <class Int>
struct Exact {
  bool negative = false;
  int exponent = 0;
  Int magnitude = 0;
};

struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity = true;  // e4m3's largest exponent holds numbers too

  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  // Of the least significant bit of subnormals.
  constexpr int lowest_exponent() const { return 1 - bias() - mantissa_bits; }
  // The first magnitude beyond the finite ones.
  constexpr std::uint64_t beyond() const {
    const std::uint64_t top = (std::uint64_t{1} << exponent_bits) - 1;
    return has_infinity ? top << mantissa_bits
                        : (top << mantissa_bits) + (std::uint64_t{1} << mantissa_bits) - 1;
  }
  constexpr std::uint64_t sign() const { return std::uint64_t{1} << (bits() - 1); }
};
inline constexpr Format kF64{11, 52};
inline constexpr Format kF32{8, 23};
inline constexpr Format kUnboundedF32{11, 23};  // as if f32 had no smallest exponent
inline constexpr Format kTf32{8, 10};
inline constexpr Format kF16{5, 10};
inline constexpr Format kBf16{8, 7};
inline constexpr Format kE4m3{4, 3, false};
inline constexpr Format kE5m2{5, 2};

template <class Int>
int width(Int value) {
  if constexpr (sizeof(Int) == 16) {
    const auto high = static_cast<std::uint64_t>(value >> 64);
    return high != 0 ? 128 - std::countl_zero(high)
                     : 64 - std::countl_zero(static_cast<std::uint64_t>(value));
  } else {
    return 64 - std::countl_zero(static_cast<std::uint64_t>(value));
  }
}

// Whether a magnitude whose lowest kept bit is `odd` moves away from zero, where `rest` compares to
// half a unit: 0 exact, 1 below, 2 half, 3 above.
inline bool rounds_up(Rounding mode, bool negative, bool odd, int rest) {
  switch (mode) {
    case Rounding::rn:
      return rest == 3 || (rest == 2 && odd);
    case Rounding::rna:
      return rest >= 2;
    case Rounding::rz:
      return false;
    case Rounding::rm:
      return negative && rest != 0;
    case Rounding::rp:
      return !negative && rest != 0;
  }
  return false;
}

// The bits of the value in `format`; overflow gives infinity or the largest number as IEEE 754 has
// it, and beyond() in a format without infinities.
template <class Int>
std::uint64_t round_to(const Format& format, const Exact<Int>& value, Rounding mode) {
  const std::uint64_t sign = value.negative ? format.sign() : 0;
  if (value.magnitude == 0) return sign;
  constexpr int kBits = static_cast<int>(8 * sizeof(Int));
  const int top = value.exponent + width(value.magnitude) - 1;
  const int lowest = format.lowest_exponent();
  const int unit = top - format.mantissa_bits > lowest ? top - format.mantissa_bits : lowest;
  const int shift = unit - value.exponent;
  std::uint64_t kept = 0;
  int rest = 0;
  if (shift <= 0) {
    kept = static_cast<std::uint64_t>(value.magnitude) << -shift;
  } else if (shift > kBits) {
    rest = 1;
  } else {
    const Int half = Int{1} << (shift - 1);
    const Int low = shift == kBits ? value.magnitude : value.magnitude & (half + (half - 1));
    kept = shift == kBits ? 0 : static_cast<std::uint64_t>(value.magnitude >> shift);
    rest = low == 0 ? 0 : low < half ? 1 : low == half ? 2 : 3;
  }
  if (rounds_up(mode, value.negative, (kept & 1) != 0, rest)) ++kept;
  // Far too large an exponent must not reach the sign.
  if (unit - lowest >= (1 << format.exponent_bits))
    kept = format.beyond();
  else
    kept += static_cast<std::uint64_t>(unit - lowest) << format.mantissa_bits;
  if (kept >= format.beyond()) {
    const bool largest = mode == Rounding::rz || (mode == Rounding::rm && !value.negative) ||
                         (mode == Rounding::rp && value.negative);
    kept = format.beyond() - (largest ? 1 : 0);
  }
  return kept | sign;
}

// Of a finite number.
inline Exact<std::uint64_t> exact_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto field = static_cast<int>((bits >> 52) & 0x7ffu);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t hidden = field == 0 ? 0 : std::uint64_t{1} << 52;
  return {(bits >> 63) != 0, (field == 0 ? 1 : field) - 1075, fraction | hidden};
}

// Results in every mode, NaNs and infinities included; f32 operands come widened.
double exact_add(const Format& format, double a, double b, Rounding mode);
double exact_mul(const Format& format, double a, double b, Rounding mode);
double exact_fma(const Format& format, double a, double b, double c, Rounding mode);
double exact_div(const Format& format, double a, double b, Rounding mode);
double exact_sqrt(const Format& format, double a, Rounding mode);

// A result is tiny, and flushed by .ftz, when rounded with an unbounded exponent it lies below the
// smallest normal number. Rounded as a subnormal it may have become that number. (Seen on an H200;
// IEEE 754 leaves the choice.) `exact` gives the result in a format.
template <class F>
float flush_rounded(float result, F exact) {
  if (std::fabs(result) == 0x1p-126f && std::fabs(exact(kUnboundedF32)) < 0x1p-126) {
    return std::copysign(0.0f, result);
  }
  return flush(result);
}

}  // namespace kiln::runtime::emulator
