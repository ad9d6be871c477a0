// The decode functions of arithmetic, by concern, and what they share. An opcode that several
// concerns have (add, min, ...) is dispatched by type in arithmetic.cpp.
#pragma once

#include <initializer_list>

#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/decode/modifiers.h"

namespace kiln::runtime::emulator {

// op.d and op.a, op.b, op.c of an instruction d, a[, b[, c]].
void set_operands(Decoder& decoder, const Instruction& instruction, Op& op, Type destination,
                  std::initializer_list<Type> sources);

// Sets op.run; unknown() when there is none.
void set_handler(Decoder& decoder, Op& op, Handler handler);

// How a floating-point result is finished: Op::flags.
namespace style {
inline constexpr std::uint8_t kFtz = 1, kSat = 2, kRelu = 4;
inline constexpr int kRoundingShift = 3;
}  // namespace style
inline Rounding rounding_of(const Op& op) {
  return static_cast<Rounding>(op.flags >> style::kRoundingShift);
}

bool is_half(Type type);  // f16, bf16 and their pairs

// Integers: add sub, with carry, div rem abs neg min max sad
void decode_integer(Decoder& decoder, const Instruction& instruction, Op& op);
// Integer products: mul mad (carry) mul24 mad24 dp4a dp2a
void decode_product(Decoder& decoder, const Instruction& instruction, Op& op);
// and or xor not cnot lop3 shl shr shf
void decode_logic(Decoder& decoder, const Instruction& instruction, Op& op);
// popc clz bfind brev bfe bfi bmsk szext fns
void decode_bits(Decoder& decoder, const Instruction& instruction, Op& op);
// f32 and f64, in one rounding: add sub mul fma mad div rcp sqrt
void decode_real(Decoder& decoder, const Instruction& instruction, Op& op);
// f32 and f64: abs neg min max copysign testp
void decode_sign(Decoder& decoder, const Instruction& instruction, Op& op);
void decode_testp(Decoder& decoder, const Instruction& instruction, Op& op);
// f16, bf16, alone and in pairs: add sub mul fma abs neg min max
void decode_half(Decoder& decoder, const Instruction& instruction, Op& op);
// div rcp sqrt rsqrt with .approx or .full; sin cos ex2 lg2 tanh
void decode_approximate(Decoder& decoder, const Instruction& instruction, Op& op);

}  // namespace kiln::runtime::emulator
