// Conversions of one value between any two scalar types, as cvt does them.
#pragma once

#include <cstdint>

#include "runtime/emulator/arithmetic/numbers.h"
#include "runtime/emulator/ptx/types.h"

namespace kiln::runtime::emulator {

struct Conversion {
  Type from = Type::none, to = Type::none;
  Rounding rounding = Rounding::rn;
  bool ftz = false;          // of an f32, source or result
  bool saturate = false;     // integers to the result's range, reals to [0, 1]
  bool satfinite = false;    // no infinities
  bool relu = false;         // negative values become 0
  bool to_integral = false;  // .rni and its like
  int width = 32;            // bits of the destination's register: what is narrower is extended
};

// `bits`: the source in the low bits, whatever is above them. Results are zero-extended beyond
// `width`.
std::uint64_t integer_to_integer(const Conversion& how, std::uint64_t bits);
std::uint64_t integer_to_real(const Conversion& how, std::uint64_t bits);
std::uint64_t real_to_integer(const Conversion& how, std::uint64_t bits);
std::uint64_t real_to_real(const Conversion& how, std::uint64_t bits);

}  // namespace kiln::runtime::emulator
