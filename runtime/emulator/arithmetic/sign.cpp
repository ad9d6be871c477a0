// f32 and f64: what needs no rounding.
#include <array>
#include <cmath>
#include <utility>

#include "runtime/emulator/arithmetic/arithmetic.h"
#include "runtime/emulator/arithmetic/extremes.h"
#include "runtime/emulator/arithmetic/lanes.h"

namespace kiln::runtime::emulator {
namespace {

template <bool ftz>
float opened(float x) {
  return ftz ? flush(x) : x;
}

template <std::uint8_t flags, bool ftz>
float extreme32(float a, float b) {
  return canonical(extreme<flags>(opened<ftz>(a), opened<ftz>(b)));
}
template <std::uint8_t... flags>
constexpr auto extreme_table(std::integer_sequence<std::uint8_t, flags...>) {
  return std::array<std::array<Handler, 2>, sizeof...(flags)>{
      {{lanewise<extreme32<flags, false>, float, float, float>,
        lanewise<extreme32<flags, true>, float, float, float>}...}};
}
constexpr auto kExtremes = extreme_table(std::make_integer_sequence<std::uint8_t, 8>());

template <bool ftz>
float absolute(float x) {
  return canonical(std::fabs(opened<ftz>(x)));
}
template <bool ftz>
float negated(float x) {
  return canonical(-opened<ftz>(x));
}
double absolute64(double x) { return std::fabs(x); }
double negated64(double x) { return -x; }

// The sign of a on b.
template <class Bits>
Bits with_sign(Bits a, Bits b) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  return (a & kSign) | (b & ~kSign);
}

Handler find_sign(std::string_view opcode, Type type, Modifiers& modifiers) {
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  const bool wide = type == Type::f64;
  if (opcode == "copysign") {
    return wide ? lanewise<with_sign<U64>, U64, U64, U64> : lanewise<with_sign<U32>, U32, U32, U32>;
  }
  if (wide) {
    if (opcode == "min") return lanewise<extreme<0, double>, double, double, double>;
    if (opcode == "max") return lanewise<extreme<kMaximum, double>, double, double, double>;
    return opcode == "abs" ? lanewise<absolute64, double, double>
                           : lanewise<negated64, double, double>;
  }
  const bool ftz = modifiers.take("ftz");
  if (opcode == "abs") {
    return ftz ? lanewise<absolute<true>, float, float> : lanewise<absolute<false>, float, float>;
  }
  if (opcode == "neg") {
    return ftz ? lanewise<negated<true>, float, float> : lanewise<negated<false>, float, float>;
  }
  std::size_t flags = opcode == "max" ? kMaximum : 0;
  if (modifiers.take("NaN")) flags |= kPropagateNan;
  if (modifiers.take("abs") && modifiers.take("xorsign")) flags |= kXorsignAbs;
  return kExtremes[flags][ftz ? 1 : 0];
}

// Zeros count as normal.
enum class Test { finite, infinite, number, not_a_number, normal, subnormal };
template <class T>
bool holds(Test test, T x) {
  const int what = std::fpclassify(x);
  switch (test) {
    case Test::finite:
      return what != FP_INFINITE && what != FP_NAN;
    case Test::infinite:
      return what == FP_INFINITE;
    case Test::number:
      return what != FP_NAN;
    case Test::not_a_number:
      return what == FP_NAN;
    case Test::normal:
      return what == FP_NORMAL || what == FP_ZERO;
    case Test::subnormal:
      return what == FP_SUBNORMAL;
  }
  return false;
}
template <class T>
Flow test_property(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  const Cell<T>* a = row<T>(warp, op.a);
  Mask set = 0;
  for_each_lane(mask, [&](int l) {
    set |= static_cast<Mask>(holds(static_cast<Test>(op.flags), from_cell<T>(a[l]))) << l;
  });
  warp.set_predicate(op.d, set, mask);
  return Flow::next;
}

}  // namespace

void decode_sign(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  if (type != Type::f32 && type != Type::f64) decoder.unknown();
  set_handler(decoder, op, find_sign(instruction.opcode, type, modifiers));
  modifiers.finish();
  if (instruction.opcode == "abs" || instruction.opcode == "neg") {
    set_operands(decoder, instruction, op, type, {type});
  } else {
    set_operands(decoder, instruction, op, type, {type, type});
  }
}

void decode_testp(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  const int test =
      modifiers.take_one_of({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  modifiers.finish();
  if (test < 0 || (type != Type::f32 && type != Type::f64)) decoder.unknown();
  decoder.expect_operands(instruction, 2, 2);
  op.flags = static_cast<std::uint8_t>(test);
  op.run = type == Type::f32 ? test_property<float> : test_property<double>;
  op.d = decoder.predicate(instruction.operands[0]);
  op.a = decoder.source(instruction.operands[1], type);
}

}  // namespace kiln::runtime::emulator
