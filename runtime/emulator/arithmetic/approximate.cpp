// The functions that the hardware approximates. Here each is computed in double and rounded once:
// f32 results are within 0.501 ulp of the truth, f16 and bf16 ones within 0.51 ulp; sin and cos are
// those of an angle rounded as the hardware rounds it.
//
// How far an H200's results are from these, over all operands (div: 2^27 pairs; .f64: 2^16
// numbers); NaN and infinities are the same, and but for sin, cos and ex2.f16 zeros:
//
//                            differ   at most
// rcp.approx.f32             13 %     1 ulp, subnormal results too
// sqrt.approx.f32             8 %     1 ulp
// rsqrt.approx.f32           11 %     2 ulp
// div.approx, div.full.f32   29 %     2 ulp
// ex2.approx.f32              6 %     2 ulp, subnormal results too
// lg2.approx.f32             25 %     2 ulp; from 0.5 to 2: 2^-22 absolute
// tanh.approx.f32             6 %     2^-16.4 relative
// sin.approx.f32             59 %     2^-21.4 absolute
// cos.approx.f32             15 %     2^-21.4 absolute
// ex2, tanh.approx.f16       30, 22 % 1 ulp
// ex2, tanh.approx.bf16       5, 3 %  1 ulp
// rcp.approx.ftz.f64          7 %     1 in its 20 bits of mantissa
// rsqrt.approx.f64           20 %     1 ulp (.ftz: 29 %, 1 in 20 bits)
#include <array>
#include <cmath>

#include "runtime/emulator/arithmetic/arithmetic.h"
#include "runtime/emulator/arithmetic/lanes.h"

namespace kiln::runtime::emulator {
namespace {

struct Reciprocal {
  static float of(float x) { return 1.0f / x; }
};
struct SquareRoot {
  static float of(float x) { return std::sqrt(x); }
};
struct ReciprocalRoot {
  static float of(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
};
// sin and cos are of turns: x times 1/2pi, cut to f32, of which 25 bits behind the point count. So
// far from zero only the turn's rounding error is left of the angle, as on the hardware, and tiny
// angles have a sine of zero.
double turn_of(float x) {
  constexpr double kPerRadian = 0x1.45f306p-3;                 // the f32 next to 1/2pi
  const double product = static_cast<double>(x) * kPerRadian;  // exact
  auto turns = static_cast<float>(product);
  if (std::fabs(static_cast<double>(turns)) > std::fabs(product)) {
    turns = std::nextafterf(turns, 0.0f);
  }
  const double cut = std::trunc(static_cast<double>(turns) * 0x1p25) * 0x1p-25;
  return std::remainder(cut, 1.0);
}
constexpr double kRadians = 0x1.921fb54442d18p+2;
struct Sine {
  static float of(float x) {
    const double turn = turn_of(x);
    const bool zero = turn == 0 || std::fabs(turn) == 0.5;
    return zero ? std::copysign(0.0f, x) : static_cast<float>(std::sin(turn * kRadians));
  }
};
struct Cosine {
  static float of(float x) {
    const double turn = turn_of(x);
    return std::fabs(turn) == 0.25 ? 0.0f : static_cast<float>(std::cos(turn * kRadians));
  }
};
struct Logarithm {
  static float of(float x) { return static_cast<float>(std::log2(static_cast<double>(x))); }
};
struct HyperbolicTangent {
  static float of(float x) { return static_cast<float>(std::tanh(static_cast<double>(x))); }
};
// Coefficients from the highest power down.
template <class... C>
double polynomial(double t, C... coefficients) {
  double sum = 0;
  ((sum = sum * t + coefficients), ...);
  return sum;
}
// 2^x = 2^n · e^(r ln 2) with n the nearest integer: without branches or calls, for attention
// spends its time here. Eleven terms of the series leave an error below 2^-44.
struct Exponential {
  static float of(float x) {
    // Beyond ±200 an f32 has long become 0 or infinity. NaN goes to -200, and back below.
    const double bounded = x > -200.0f ? (x < 200.0f ? static_cast<double>(x) : 200.0) : -200.0;
    constexpr double kRound = 0x1.8p52;  // the sum's lowest bits are n
    const double shifted = bounded + kRound;
    const double t = (bounded - (shifted - kRound)) * 0x1.62e42fefa39efp-1;  // ln 2
    const double sum =
        polynomial(t, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                   1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
    const double scale =
        std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
    return x != x ? x : static_cast<float>(sum * scale);
  }
};
struct Quotient {
  static float of(float a, float b) { return a / b; }
};
// div.approx multiplies by the reciprocal, which is flushed for the largest divisors.
struct QuickQuotient {
  static float of(float a, float b) {
    if (std::fabs(b) > 0x1p126f && std::isfinite(b)) return a * std::copysign(0.0f, b);
    return a / b;
  }
};

template <class F, bool ftz>
float one(float x) {
  return ftz ? canonical(flush(F::of(flush(x)))) : canonical(F::of(x));
}
template <class F, bool ftz>
float two(float a, float b) {
  return ftz ? canonical(flush(F::of(flush(a), flush(b)))) : canonical(F::of(a, b));
}
template <class F>
Handler unary(bool ftz) {
  return ftz ? lanewise<one<F, true>, float, float> : lanewise<one<F, false>, float, float>;
}
template <class F>
Handler binary(bool ftz) {
  return ftz ? lanewise<two<F, true>, float, float, float>
             : lanewise<two<F, false>, float, float, float>;
}

// Halves: f16 keeps subnormals. bf16's ex2 flushes them (its .ftz is obligatory).
template <class F>
std::uint32_t in_f16(std::uint32_t bits) {
  return f32_to_f16(F::of(f16_to_f32(static_cast<std::uint16_t>(bits))));
}
template <class F, bool ftz>
std::uint32_t in_bf16(std::uint32_t bits) {
  const float x = bf16_to_f32(static_cast<std::uint16_t>(bits));
  // The smallest normal number of bf16 is that of f32.
  return f32_to_bf16(ftz ? flush(F::of(flush(x))) : F::of(x));
}
template <auto F, bool pair>
std::uint32_t in_halves(std::uint32_t bits) {
  const std::uint32_t low = F(bits & 0xffffu);
  return pair ? low | F(bits >> 16) << 16 : low;
}
template <class F>
Handler half_handler(Type type, bool ftz) {
  using U = std::uint32_t;
  const bool is_f16 = type == Type::f16 || type == Type::f16x2;
  if (is_f16 && ftz) return nullptr;
  switch (type) {
    case Type::f16:
      return lanewise<in_halves<in_f16<F>, false>, U, U>;
    case Type::f16x2:
      return lanewise<in_halves<in_f16<F>, true>, U, U>;
    case Type::bf16:
      return ftz ? lanewise<in_halves<in_bf16<F, true>, false>, U, U>
                 : lanewise<in_halves<in_bf16<F, false>, false>, U, U>;
    case Type::bf16x2:
      return ftz ? lanewise<in_halves<in_bf16<F, true>, true>, U, U>
                 : lanewise<in_halves<in_bf16<F, false>, true>, U, U>;
    default:
      return nullptr;
  }
}

// The .ftz.f64 forms read the upper word of their operand and give 20 bits of mantissa, the lower
// word zero.
double gross(double x) {
  constexpr std::uint64_t kUpper = 0xffffffff00000000u;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x) & kUpper;
  const bool tiny = (bits & 0x7ff0000000000000u) == 0;
  return std::bit_cast<double>(tiny ? bits & 0x8000000000000000u : bits);
}
double gross_reciprocal(double x) {
  return x != x ? std::numeric_limits<double>::quiet_NaN() : gross(1.0 / gross(x));
}
double gross_reciprocal_root(double x) {
  const double root = 1.0 / std::sqrt(gross(x));
  return root != root ? std::numeric_limits<double>::quiet_NaN() : gross(root);
}
double reciprocal_root(double x) { return 1.0 / std::sqrt(x); }

Handler find_f64(std::string_view opcode, bool ftz) {
  if (opcode == "rcp" && ftz) return lanewise<gross_reciprocal, double, double>;
  if (opcode == "rsqrt") {
    return ftz ? lanewise<gross_reciprocal_root, double, double>
               : lanewise<reciprocal_root, double, double>;
  }
  return nullptr;
}

struct ApproximateRow {
  std::string_view opcode;
  Handler (*f32)(bool ftz);
  Handler (*half)(Type type, bool ftz);
};
constexpr std::array<ApproximateRow, 9> kRows = {{
    {"rcp", unary<Reciprocal>, nullptr},
    {"sqrt", unary<SquareRoot>, nullptr},
    {"rsqrt", unary<ReciprocalRoot>, nullptr},
    {"sin", unary<Sine>, nullptr},
    {"cos", unary<Cosine>, nullptr},
    {"lg2", unary<Logarithm>, nullptr},
    {"ex2", unary<Exponential>, half_handler<Exponential>},
    {"tanh", unary<HyperbolicTangent>, half_handler<HyperbolicTangent>},
    {"div", binary<Quotient>, nullptr},
}};

Handler find_approximate(std::string_view opcode, Type type, bool full, bool ftz) {
  if (opcode == "div" && type == Type::f32 && !full) return binary<QuickQuotient>(ftz);
  if (full && opcode != "div") return nullptr;
  if (type == Type::f64) return find_f64(opcode, ftz);
  if (opcode == "tanh" && ftz) return nullptr;
  for (const ApproximateRow& entry : kRows) {
    if (entry.opcode != opcode) continue;
    if (type == Type::f32) return entry.f32(ftz);
    return entry.half != nullptr ? entry.half(type, ftz) : nullptr;
  }
  return nullptr;
}

}  // namespace

void decode_approximate(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const int how = modifiers.take_one_of({"approx", "full"});
  const bool ftz = modifiers.take("ftz");
  const Type type = modifiers.take_type();
  modifiers.finish();
  if (how < 0) decoder.unknown();
  set_handler(decoder, op, find_approximate(instruction.opcode, type, how == 1, ftz));
  if (instruction.opcode == "div") {
    set_operands(decoder, instruction, op, type, {type, type});
  } else {
    set_operands(decoder, instruction, op, type, {type});
  }
}

}  // namespace kiln::runtime::emulator
