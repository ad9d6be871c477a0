// f32 and f64 arithmetic with one rounding. To nearest by the host's own operations; the directed
// modes through exact numbers. add and mul without a rounding modifier may be fused by ptxas; here
// they never are.
#include <array>
#include <cmath>

#include "runtime/emulator/arithmetic/arithmetic.h"
#include "runtime/emulator/arithmetic/exact.h"
#include "runtime/emulator/arithmetic/lanes.h"

namespace kiln::runtime::emulator {
namespace {

struct Add {
  static constexpr int arity = 2;
  template <class T>
  static T near(T a, T b) {
    return a + b;
  }
  static double exact(const Format& format, double a, double b, Rounding mode) {
    return exact_add(format, a, b, mode);
  }
};
struct Subtract {
  static constexpr int arity = 2;
  template <class T>
  static T near(T a, T b) {
    return a - b;
  }
  static double exact(const Format& format, double a, double b, Rounding mode) {
    return exact_add(format, a, -b, mode);
  }
};
struct Multiply {
  static constexpr int arity = 2;
  template <class T>
  static T near(T a, T b) {
    return a * b;
  }
  static double exact(const Format& format, double a, double b, Rounding mode) {
    return exact_mul(format, a, b, mode);
  }
};
struct Fma {
  static constexpr int arity = 3;
  static float near(float a, float b, float c) { return fma_rn(a, b, c); }
  static double near(double a, double b, double c) { return std::fma(a, b, c); }
  static double exact(const Format& format, double a, double b, double c, Rounding mode) {
    return exact_fma(format, a, b, c, mode);
  }
};
// Division by zero gives infinity, as IEEE 754 has it.
struct Divide {
  static constexpr int arity = 2;
  template <class T>
  static T near(T a, T b) {
    return a / b;
  }
  static double exact(const Format& format, double a, double b, Rounding mode) {
    return exact_div(format, a, b, mode);
  }
};
struct Reciprocal {
  static constexpr int arity = 1;
  template <class T>
  static T near(T a) {
    return Divide::near(T{1}, a);
  }
  static double exact(const Format& format, double a, Rounding mode) {
    return exact_div(format, 1.0, a, mode);
  }
};
struct SquareRoot {
  static constexpr int arity = 1;
  template <class T>
  static T near(T a) {
    return std::sqrt(a);
  }
  static double exact(const Format& format, double a, Rounding mode) {
    return exact_sqrt(format, a, mode);
  }
};

// Maps f over as many sources of type T as it has.
template <class T, int arity, class F>
void map(Warp& warp, const Op& op, Mask mask, F f) {
  if constexpr (arity == 1) Lanes<T, T>::map(warp, mask, op.d, {op.a}, f);
  if constexpr (arity == 2) Lanes<T, T, T>::map(warp, mask, op.d, {op.a, op.b}, f);
  if constexpr (arity == 3) Lanes<T, T, T, T>::map(warp, mask, op.d, {op.a, op.b, op.c}, f);
}

template <class F, class... X>
float flush_result(float result, Rounding mode, X... x) {
  return flush_rounded(result, [=](const Format& format) {
    return F::exact(format, static_cast<double>(x)..., mode);
  });
}
template <class F, bool ftz, bool sat, class... X>
float nearest(X... x) {
  const float result =
      ftz ? flush_result<F>(F::near(flush(x)...), Rounding::rn, flush(x)...) : F::near(x...);
  return sat ? saturate(result) : canonical(result);
}

template <class F, bool ftz, bool sat>
Flow to_nearest(Warp& warp, const Op& op, Mask mask) {
  map<float, F::arity>(warp, op, mask, [](auto... x) { return nearest<F, ftz, sat>(x...); });
  return Flow::next;
}
template <class F>
constexpr std::array<Handler, 4> kNearest = {to_nearest<F, false, false>,
                                             to_nearest<F, true, false>, to_nearest<F, false, true>,
                                             to_nearest<F, true, true>};

template <class F>
Flow to_nearest64(Warp& warp, const Op& op, Mask mask) {
  map<double, F::arity>(warp, op, mask, [](auto... x) { return F::near(x...); });
  return Flow::next;
}

template <class F>
Flow directed(Warp& warp, const Op& op, Mask mask) {
  const Rounding mode = rounding_of(op);
  const bool ftz = (op.flags & style::kFtz) != 0, sat = (op.flags & style::kSat) != 0;
  map<float, F::arity>(warp, op, mask, [=](auto... x) {
    const auto result =
        static_cast<float>(F::exact(kF32, static_cast<double>(ftz ? flush(x) : x)..., mode));
    const float flushed = ftz ? flush_result<F>(result, mode, flush(x)...) : result;
    return sat ? saturate(flushed) : canonical(flushed);
  });
  return Flow::next;
}

template <class F>
Flow directed64(Warp& warp, const Op& op, Mask mask) {
  const Rounding mode = rounding_of(op);
  map<double, F::arity>(warp, op, mask, [=](auto... x) { return F::exact(kF64, x..., mode); });
  return Flow::next;
}

template <class F>
Handler choose(Type type, std::uint8_t flags) {
  const bool is_directed = (flags >> style::kRoundingShift) != 0;
  if (type == Type::f64) return is_directed ? directed64<F> : to_nearest64<F>;
  return is_directed ? directed<F> : kNearest<F>[flags & (style::kFtz | style::kSat)];
}

struct RealRow {
  std::string_view opcode;
  Handler (*choose)(Type, std::uint8_t);
  int arity;
  bool needs_rounding, may_saturate;
};
constexpr std::array<RealRow, 8> kRows = {{
    {"add", choose<Add>, 2, false, true},
    {"sub", choose<Subtract>, 2, false, true},
    {"mul", choose<Multiply>, 2, false, true},
    {"fma", choose<Fma>, 3, true, true},
    {"mad", choose<Fma>, 3, true, true},  // from sm_20 on, mad is fma
    {"div", choose<Divide>, 2, true, false},
    {"rcp", choose<Reciprocal>, 1, true, false},
    {"sqrt", choose<SquareRoot>, 1, true, false},
}};

}  // namespace

void decode_real(Decoder& decoder, const Instruction& instruction, Op& op) {
  const RealRow* found = nullptr;
  for (const RealRow& entry : kRows) {
    if (entry.opcode == instruction.opcode) found = &entry;
  }
  if (found == nullptr) decoder.unknown();
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  const int mode = modifiers.take_one_of({"rn", "rz", "rm", "rp"});
  if (mode < 0 && found->needs_rounding) decoder.unknown();
  constexpr std::array kModes = {Rounding::rn, Rounding::rz, Rounding::rm, Rounding::rp};
  const Rounding rounding = kModes[static_cast<std::size_t>(mode < 0 ? 0 : mode)];
  op.flags = static_cast<std::uint8_t>(static_cast<int>(rounding) << style::kRoundingShift);
  if (type == Type::f32) {
    if (modifiers.take("ftz")) op.flags |= style::kFtz;
    if (found->may_saturate && modifiers.take("sat")) op.flags |= style::kSat;
  }
  modifiers.finish();
  op.run = found->choose(type, op.flags);
  if (found->arity == 1) set_operands(decoder, instruction, op, type, {type});
  if (found->arity == 2) set_operands(decoder, instruction, op, type, {type, type});
  if (found->arity == 3) set_operands(decoder, instruction, op, type, {type, type, type});
}

}  // namespace kiln::runtime::emulator
