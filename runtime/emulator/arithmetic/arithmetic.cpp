// The table of arithmetic, and the choice of a concern where several share an opcode.
#include "runtime/emulator/arithmetic/arithmetic.h"

#include <array>

namespace kiln::runtime::emulator {
namespace {

bool is_approximate(const Instruction& instruction) {
  return instruction.has("approx") || instruction.has("full");
}

// min, max, abs, neg.
void decode_any_sign(Decoder& decoder, const Instruction& instruction, Op& op) {
  const Type type = instruction.type();
  if (is_half(type)) {
    decode_half(decoder, instruction, op);
  } else if (type == Type::f32 || type == Type::f64) {
    decode_sign(decoder, instruction, op);
  } else {
    decode_integer(decoder, instruction, op);
  }
}

void decode_any(Decoder& decoder, const Instruction& instruction, Op& op) {
  const Type type = instruction.type();
  if (is_half(type)) {
    decode_half(decoder, instruction, op);
  } else if (is_approximate(instruction)) {
    decode_approximate(decoder, instruction, op);
  } else if (type == Type::f32 || type == Type::f64) {
    decode_real(decoder, instruction, op);
  } else if (instruction.opcode == "mul" || instruction.opcode == "mad") {
    decode_product(decoder, instruction, op);
  } else {
    decode_integer(decoder, instruction, op);
  }
}

constexpr std::array kOpcodes = {
    OpcodeRow{"add", decode_any},          OpcodeRow{"sub", decode_any},
    OpcodeRow{"mul", decode_any},          OpcodeRow{"mad", decode_any},
    OpcodeRow{"fma", decode_any},          OpcodeRow{"div", decode_any},
    OpcodeRow{"abs", decode_any_sign},     OpcodeRow{"neg", decode_any_sign},
    OpcodeRow{"min", decode_any_sign},     OpcodeRow{"max", decode_any_sign},
    OpcodeRow{"rcp", decode_any},          OpcodeRow{"sqrt", decode_any},
    OpcodeRow{"rem", decode_integer},      OpcodeRow{"sad", decode_integer},
    OpcodeRow{"addc", decode_integer},     OpcodeRow{"subc", decode_integer},
    OpcodeRow{"madc", decode_product},     OpcodeRow{"mul24", decode_product},
    OpcodeRow{"mad24", decode_product},    OpcodeRow{"dp4a", decode_product},
    OpcodeRow{"dp2a", decode_product},     OpcodeRow{"and", decode_logic},
    OpcodeRow{"or", decode_logic},         OpcodeRow{"xor", decode_logic},
    OpcodeRow{"not", decode_logic},        OpcodeRow{"cnot", decode_logic},
    OpcodeRow{"lop3", decode_logic},       OpcodeRow{"shl", decode_logic},
    OpcodeRow{"shr", decode_logic},        OpcodeRow{"shf", decode_logic},
    OpcodeRow{"popc", decode_bits},        OpcodeRow{"clz", decode_bits},
    OpcodeRow{"bfind", decode_bits},       OpcodeRow{"brev", decode_bits},
    OpcodeRow{"bfe", decode_bits},         OpcodeRow{"bfi", decode_bits},
    OpcodeRow{"bmsk", decode_bits},        OpcodeRow{"szext", decode_bits},
    OpcodeRow{"fns", decode_bits},         OpcodeRow{"copysign", decode_sign},
    OpcodeRow{"testp", decode_testp},      OpcodeRow{"rsqrt", decode_approximate},
    OpcodeRow{"sin", decode_approximate},  OpcodeRow{"cos", decode_approximate},
    OpcodeRow{"ex2", decode_approximate},  OpcodeRow{"lg2", decode_approximate},
    OpcodeRow{"tanh", decode_approximate},
};

}  // namespace

std::span<const OpcodeRow> arithmetic_opcodes() { return kOpcodes; }

void set_operands(Decoder& decoder, const Instruction& instruction, Op& op, Type destination,
                  std::initializer_list<Type> sources) {
  decoder.expect_operands(instruction, 1 + sources.size(), 1 + sources.size());
  op.d = decoder.destination(instruction.operands[0], destination);
  const std::array<Ref*, 3> refs{&op.a, &op.b, &op.c};
  std::size_t i = 0;
  for (Type type : sources) {
    *refs[i] = decoder.source(instruction.operands[i + 1], type);
    ++i;
  }
}

void set_handler(Decoder& decoder, Op& op, Handler handler) {
  if (handler == nullptr) decoder.unknown();
  op.run = handler;
}

bool is_half(Type type) {
  return type == Type::f16 || type == Type::f16x2 || type == Type::bf16 || type == Type::bf16x2;
}

}  // namespace kiln::runtime::emulator
