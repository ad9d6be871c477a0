// Logic and shifts. On predicates, logic works on the lanes' mask at once.
#include <algorithm>
#include <array>

#include "runtime/emulator/arithmetic/arithmetic.h"
#include "runtime/emulator/arithmetic/lanes.h"

namespace kiln::runtime::emulator {
namespace {

struct And {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static constexpr T of(T a) {
    return static_cast<T>(~a);
  }
};
struct IsZero {
  template <class T>
  static constexpr T of(T a) {
    return a == 0 ? 1 : 0;
  }
};

template <class F>
Flow on_predicates(Warp& warp, const Op& op, Mask mask) {
  if (op.d != kNoRef) {
    warp.set_predicate(op.d, F::of(warp.predicate(op.a), warp.predicate(op.b)), mask);
  }
  return Flow::next;
}
Flow not_predicate(Warp& warp, const Op& op, Mask mask) {
  if (op.d != kNoRef) warp.set_predicate(op.d, ~warp.predicate(op.a), mask);
  return Flow::next;
}

template <class F, class T>
constexpr Handler kOne = lanewise<F::template of<T>, T, T>;
template <class F, class T>
constexpr Handler kTwo = lanewise<F::template of<T>, T, T, T>;
template <class F>
constexpr std::array<TypedHandler, 3> kOnes = {{
    {Type::b16, kOne<F, std::uint16_t>},
    {Type::b32, kOne<F, std::uint32_t>},
    {Type::b64, kOne<F, std::uint64_t>},
}};
template <class F>
constexpr std::array<TypedHandler, 4> kTwos = {{
    {Type::pred, on_predicates<F>},
    {Type::b16, kTwo<F, std::uint16_t>},
    {Type::b32, kTwo<F, std::uint32_t>},
    {Type::b64, kTwo<F, std::uint64_t>},
}};

// Shifts by the width and more give what a shift by the width would.
template <class T>
constexpr T shift_left(T a, std::uint32_t by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
}
template <class T>
constexpr T shift_right(T a, std::uint32_t by) {
  constexpr std::uint32_t last = 8 * sizeof(T) - 1;
  if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(a >> std::min(by, last));
  } else {
    return by > last ? T{0} : static_cast<T>(a >> by);
  }
}
template <class T>
constexpr Handler kLeft = lanewise<shift_left<T>, T, T, std::uint32_t>;
template <class T>
constexpr Handler kRight = lanewise<shift_right<T>, T, T, std::uint32_t>;
constexpr std::array<TypedHandler, 3> kShiftLeft = {{
    {Type::b16, kLeft<std::uint16_t>},
    {Type::b32, kLeft<std::uint32_t>},
    {Type::b64, kLeft<std::uint64_t>},
}};
constexpr std::array<TypedHandler, 9> kShiftRight = {{
    {Type::b16, kRight<std::uint16_t>},
    {Type::b32, kRight<std::uint32_t>},
    {Type::b64, kRight<std::uint64_t>},
    {Type::u16, kRight<std::uint16_t>},
    {Type::u32, kRight<std::uint32_t>},
    {Type::u64, kRight<std::uint64_t>},
    {Type::s16, kRight<std::int16_t>},
    {Type::s32, kRight<std::int32_t>},
    {Type::s64, kRight<std::int64_t>},
}};

// shf: the 64 bits b:a, shifted by up to 32; its upper word for a left shift, else its lower one.
template <bool left, bool wraps>
constexpr std::uint32_t funnel(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const std::uint32_t by = wraps ? c & 31 : std::min(c, 32u);
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  return static_cast<std::uint32_t>(left ? (both << by) >> 32 : both >> by);
}
template <bool left, bool wraps>
constexpr Handler kFunnel =
    lanewise<funnel<left, wraps>, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

// lop3: bit 4a + 2b + c of the table is the result for the bits a, b, c.
std::uint32_t select_bits(std::uint32_t table, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto all = [&](int bit) { return 0u - ((table >> bit) & 1u); };
  const std::uint32_t with_c =
      (~a & ~b & all(1)) | (~a & b & all(3)) | (a & ~b & all(5)) | (a & b & all(7));
  const std::uint32_t without_c =
      (~a & ~b & all(0)) | (~a & b & all(2)) | (a & ~b & all(4)) | (a & b & all(6));
  return (with_c & c) | (without_c & ~c);
}
Flow lop3(Warp& warp, const Op& op, Mask mask) {
  const auto table = static_cast<std::uint32_t>(op.immediate);
  Lanes<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>::map(
      warp, mask, op.d, {op.a, op.b, op.c}, [=](std::uint32_t a, std::uint32_t b, std::uint32_t c) {
        return select_bits(table, a, b, c);
      });
  return Flow::next;
}
// lop3.BoolOp: also p = (result != 0) BoolOp q.
Flow lop3_predicate(Warp& warp, const Op& op, Mask mask) {
  const auto table = static_cast<std::uint32_t>(op.immediate);
  const std::uint32_t *a = warp.u32(op.a), *b = warp.u32(op.b), *c = warp.u32(op.c);
  const std::span<const Ref> predicates = warp.list(op);
  Mask set = 0;
  for_each_lane(mask, [&](int l) {
    const std::uint32_t result = select_bits(table, a[l], b[l], c[l]);
    set |= static_cast<Mask>(result != 0) << l;
    if (op.d != kNoRef) warp.u32_out(op.d)[l] = result;
  });
  Mask other = warp.predicate(predicates[1]);
  if ((op.flags & 2) != 0) other = ~other;
  set = (op.flags & 1) != 0 ? set & other : set | other;
  if (predicates[0] != kNoRef) warp.set_predicate(predicates[0], set, mask);
  return Flow::next;
}

void decode_lop3(Decoder& decoder, const Instruction& instruction, Op& op, Modifiers& modifiers) {
  const int combine = modifiers.take_one_of({"or", "and"});
  if (modifiers.take_type() != Type::b32) decoder.unknown();
  modifiers.finish();
  decoder.expect_operands(instruction, combine < 0 ? 5 : 6, combine < 0 ? 5 : 6);
  const auto& operands = instruction.operands;
  op.run = lop3;
  const Operand* result = &operands[0];
  if (combine >= 0) {
    if (!result->is(Operand::Kind::pair)) decoder.fail("expected d|p");
    const Ref pair[] = {decoder.predicate(result->items[1]), decoder.predicate(operands[5])};
    if (pair[1] == kNoRef) decoder.fail("expected a predicate register");
    op.list = static_cast<std::uint32_t>(decoder.program().lists.size());
    op.list_size = 2;
    decoder.program().lists.insert(decoder.program().lists.end(), pair, pair + 2);
    op.flags = static_cast<std::uint8_t>((combine == 1 ? 1 : 0) | (operands[5].negated ? 2 : 0));
    op.run = lop3_predicate;
    result = &result->items[0];
  }
  op.d = decoder.destination(*result, Type::b32);
  op.a = decoder.source(operands[1], Type::b32);
  op.b = decoder.source(operands[2], Type::b32);
  op.c = decoder.source(operands[3], Type::b32);
  op.immediate = decoder.literal(operands[4]);
  if (op.immediate < 0 || op.immediate > 255) decoder.fail("lop3's table is a byte");
}

void decode_funnel(Decoder& decoder, const Instruction& instruction, Op& op, Modifiers& modifiers) {
  const int right = modifiers.take_one_of({"l", "r"});
  const int wraps = modifiers.take_one_of({"clamp", "wrap"});
  if (right < 0 || wraps < 0 || modifiers.take_type() != Type::b32) decoder.unknown();
  modifiers.finish();
  op.run = right ? (wraps ? kFunnel<false, true> : kFunnel<false, false>)
                 : (wraps ? kFunnel<true, true> : kFunnel<true, false>);
  set_operands(decoder, instruction, op, Type::b32, {Type::b32, Type::b32, Type::u32});
}

Handler find_logic(std::string_view opcode, Type type) {
  if (opcode == "and") return find_handler(kTwos<And>, type);
  if (opcode == "or") return find_handler(kTwos<Or>, type);
  if (opcode == "xor") return find_handler(kTwos<Xor>, type);
  if (opcode == "not") return type == Type::pred ? not_predicate : find_handler(kOnes<Not>, type);
  if (opcode == "cnot") return find_handler(kOnes<IsZero>, type);
  return nullptr;
}

}  // namespace

void decode_logic(Decoder& decoder, const Instruction& instruction, Op& op) {
  const std::string_view opcode = instruction.opcode;
  Modifiers modifiers(decoder, instruction);
  if (opcode == "lop3") return decode_lop3(decoder, instruction, op, modifiers);
  if (opcode == "shf") return decode_funnel(decoder, instruction, op, modifiers);
  const Type type = modifiers.take_type();
  modifiers.finish();
  if (opcode == "shl" || opcode == "shr") {
    set_handler(decoder, op,
                opcode == "shl" ? find_handler(kShiftLeft, type) : find_handler(kShiftRight, type));
    return set_operands(decoder, instruction, op, type, {type, Type::u32});
  }
  set_handler(decoder, op, find_logic(opcode, type));
  bool one = opcode == "not" || opcode == "cnot";
  if (type != Type::pred) {
    if (one) return set_operands(decoder, instruction, op, type, {type});
    return set_operands(decoder, instruction, op, type, {type, type});
  }
  decoder.expect_operands(instruction, one ? 2 : 3, one ? 2 : 3);
  // NVRTC writes xor.pred d, a, -1 for not.pred.
  if (opcode == "xor" && instruction.operands[2].is(Operand::Kind::integer) &&
      decoder.literal(instruction.operands[2]) == -1) {
    one = true;
    set_handler(decoder, op, find_logic("not", type));
  }
  for (const Operand& operand : instruction.operands) {
    if (operand.negated) decoder.fail("logic takes predicates as they are: use not.pred");
  }
  op.d = decoder.predicate(instruction.operands[0]);
  op.a = decoder.predicate(instruction.operands[1]);
  if (!one) op.b = decoder.predicate(instruction.operands[2]);
  if (op.a == kNoRef || (!one && op.b == kNoRef)) decoder.fail("expected a predicate register");
}

}  // namespace kiln::runtime::emulator
