// f16 and bf16, alone and in pairs. Every result is rounded once: a sum or product of two such
// numbers in f32 has bits enough that the second rounding does no harm (24 >= 2 * 11 + 2, and
// products are exact); an fma keeps a sticky bit (odd_sum).
#include <array>
#include <cmath>
#include <utility>

#include "runtime/emulator/arithmetic/arithmetic.h"
#include "runtime/emulator/arithmetic/extremes.h"
#include "runtime/emulator/arithmetic/lanes.h"

namespace kiln::runtime::emulator {
namespace {

struct Half {
  static constexpr std::uint32_t exponent = 0x7c00;
  static float widen(std::uint32_t bits) { return f16_to_f32(static_cast<std::uint16_t>(bits)); }
  static std::uint32_t narrow(float x) { return f32_to_f16(x); }
  // The product has 22 bits and no exponent that an f32 lacks.
  static float fma(float a, float b, float c) { return odd_sum(a * b, c); }
};
struct Brain {
  static constexpr std::uint32_t exponent = 0x7f80;
  static float widen(std::uint32_t bits) { return bf16_to_f32(static_cast<std::uint16_t>(bits)); }
  static std::uint32_t narrow(float x) { return f32_to_bf16(x); }
  static float fma(float a, float b, float c) {
    return odd_float(odd_sum(static_cast<double>(a) * b, static_cast<double>(c)));
  }
};

struct Add {
  static constexpr int arity = 2;
  template <class H>
  static float of(float a, float b) {
    return a + b;
  }
};
struct Subtract {
  static constexpr int arity = 2;
  template <class H>
  static float of(float a, float b) {
    return a - b;
  }
};
struct Multiply {
  static constexpr int arity = 2;
  template <class H>
  static float of(float a, float b) {
    return a * b;
  }
};
struct Fma {
  static constexpr int arity = 3;
  template <class H>
  static float of(float a, float b, float c) {
    return H::fma(a, b, c);
  }
};
struct Absolute {
  static constexpr int arity = 1;
  template <class H>
  static float of(float a) {
    return std::fabs(a);
  }
};
struct Negate {
  static constexpr int arity = 1;
  template <class H>
  static float of(float a) {
    return -a;
  }
};
template <std::uint8_t flags>
struct Extreme {
  static constexpr int arity = 2;
  template <class H>
  static float of(float a, float b) {
    return extreme<flags>(a, b);
  }
};

// Subnormals of the format to zeros of their sign.
template <class H>
std::uint32_t flushed(std::uint32_t bits) {
  return (bits & H::exponent) == 0 ? bits & 0x8000u : bits;
}

template <class H>
std::uint32_t styled(float x, std::uint8_t flags) {
  if ((flags & style::kSat) != 0) x = saturate(x);
  // NaN passes: narrowing makes it canonical.
  if ((flags & style::kRelu) != 0) x = x <= 0 ? 0.0f : x;
  const std::uint32_t bits = H::narrow(x);
  // Tiny before it is rounded as a subnormal (exact.h): only f16 has .ftz.
  const bool tiny = std::fabs(x) < 0x1.ffep-15f;
  return (flags & style::kFtz) != 0 && tiny ? bits & 0x8000u : bits;
}

// F on the low halves, and on the high ones too for a pair.
template <class H, bool pair, class F, class Open, class Close, class... Words>
std::uint32_t in_halves(Open open, Close close, Words... words) {
  std::uint32_t result = close(F::template of<H>(H::widen(open(words & 0xffffu))...));
  if constexpr (pair) result |= close(F::template of<H>(H::widen(open(words >> 16))...)) << 16;
  return result;
}

template <class H, bool pair, class F, bool plain>
Flow half_op(Warp& warp, const Op& op, Mask mask) {
  const std::uint8_t flags = op.flags;
  const bool ftz = (flags & style::kFtz) != 0;
  const auto f = [=](auto... words) {
    if constexpr (plain) {
      return in_halves<H, pair, F>([](std::uint32_t bits) { return bits; },
                                   [](float x) { return H::narrow(x); }, words...);
    } else {
      return in_halves<H, pair, F>(
          [=](std::uint32_t bits) { return ftz ? flushed<H>(bits) : bits; },
          [=](float x) { return styled<H>(x, flags); }, words...);
    }
  };
  using U = std::uint32_t;
  if constexpr (F::arity == 1) Lanes<U, U>::map(warp, mask, op.d, {op.a}, f);
  if constexpr (F::arity == 2) Lanes<U, U, U>::map(warp, mask, op.d, {op.a, op.b}, f);
  if constexpr (F::arity == 3) Lanes<U, U, U, U>::map(warp, mask, op.d, {op.a, op.b, op.c}, f);
  return Flow::next;
}

template <class F, bool plain>
constexpr std::array<TypedHandler, 4> kHandlers = {{
    {Type::f16, half_op<Half, false, F, plain>},
    {Type::f16x2, half_op<Half, true, F, plain>},
    {Type::bf16, half_op<Brain, false, F, plain>},
    {Type::bf16x2, half_op<Brain, true, F, plain>},
}};
template <class F>
Handler choose(Type type, std::uint8_t flags) {
  return find_handler(flags == 0 ? kHandlers<F, true> : kHandlers<F, false>, type);
}

template <std::uint8_t... kinds>
constexpr auto extreme_table(std::integer_sequence<std::uint8_t, kinds...>) {
  return std::array<Handler (*)(Type, std::uint8_t), sizeof...(kinds)>{choose<Extreme<kinds>>...};
}
constexpr auto kExtremes = extreme_table(std::make_integer_sequence<std::uint8_t, 8>());

struct HalfRow {
  std::string_view opcode;
  Handler (*choose)(Type, std::uint8_t);
  std::size_t arity;
};
constexpr std::array<HalfRow, 8> kRows = {{
    {"add", choose<Add>, 2},
    {"sub", choose<Subtract>, 2},
    {"mul", choose<Multiply>, 2},
    {"fma", choose<Fma>, 3},
    {"abs", choose<Absolute>, 1},
    {"neg", choose<Negate>, 1},
    {"min", nullptr, 2},
    {"max", nullptr, 2},
}};

std::uint8_t take_style(const HalfRow& entry, Type type, Modifiers& modifiers) {
  const bool is_f16 = type == Type::f16 || type == Type::f16x2;
  std::uint8_t flags = 0;
  if (is_f16 && modifiers.take("ftz")) flags |= style::kFtz;
  if (entry.choose == nullptr || entry.arity == 1) return flags;
  if (is_f16 && modifiers.take("sat")) flags |= style::kSat;
  if (entry.arity == 3 && modifiers.take("relu")) flags |= style::kRelu;
  modifiers.take("rn");
  return flags;
}

}  // namespace

void decode_half(Decoder& decoder, const Instruction& instruction, Op& op) {
  const HalfRow* found = nullptr;
  for (const HalfRow& entry : kRows) {
    if (entry.opcode == instruction.opcode) found = &entry;
  }
  if (found == nullptr) decoder.unknown();
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  op.flags = take_style(*found, type, modifiers);
  auto choose_handler = found->choose;
  if (choose_handler == nullptr) {
    std::size_t kind = instruction.opcode == "max" ? kMaximum : 0;
    if (modifiers.take("NaN")) kind |= kPropagateNan;
    if (modifiers.take("abs") && modifiers.take("xorsign")) kind |= kXorsignAbs;
    choose_handler = kExtremes[kind];
  }
  modifiers.finish();
  set_handler(decoder, op, choose_handler(type, op.flags));
  if (found->arity == 1) set_operands(decoder, instruction, op, type, {type});
  if (found->arity == 2) set_operands(decoder, instruction, op, type, {type, type});
  if (found->arity == 3) set_operands(decoder, instruction, op, type, {type, type, type});
}

}  // namespace kiln::runtime::emulator
