// min and max of floating-point numbers as PTX has them, for every format that widens to T.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "runtime/emulator/arithmetic/numbers.h"

namespace kiln::runtime::emulator {

// How: which of NaN operands wins, and .xorsign.abs.
enum ExtremeFlags : std::uint8_t { kMaximum = 1, kPropagateNan = 2, kXorsignAbs = 4 };

// -0 is less than +0. One NaN gives the other operand, unless .NaN; two give NaN (any: the caller
// makes it canonical).
template <std::uint8_t flags, class T>
T extreme(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  const Bits a_bits = std::bit_cast<Bits>(a), b_bits = std::bit_cast<Bits>(b);
  const Bits xorsign = (a_bits ^ b_bits) & kSign;
  if constexpr ((flags & kXorsignAbs) != 0) {
    a = std::bit_cast<T>(a_bits & ~kSign);
    b = std::bit_cast<T>(b_bits & ~kSign);
  }
  // Among equals, only zeros differ: by their signs.
  const T equal =
      std::bit_cast<T>((flags & kMaximum) != 0 ? std::bit_cast<Bits>(a) & std::bit_cast<Bits>(b)
                                               : std::bit_cast<Bits>(a) | std::bit_cast<Bits>(b));
  const bool first = (flags & kMaximum) != 0 ? a > b : a < b;
  T result = a == b ? equal : first ? a : b;
  if constexpr ((flags & kPropagateNan) != 0) {
    result = a != a ? a : result;
  } else {
    result = b != b ? a : result;
  }
  if constexpr ((flags & kXorsignAbs) != 0) {
    result = std::bit_cast<T>(std::bit_cast<Bits>(result) | xorsign);
  }
  return result;
}

}  // namespace kiln::runtime::emulator
