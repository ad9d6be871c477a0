// Comparisons and what hangs on them: setp, set, selp, slct.
#include <array>
#include <bit>
#include <cstring>

#include "runtime/emulator/arithmetic/lanes.h"
#include "runtime/emulator/arithmetic/moves.h"
#include "runtime/emulator/decode/modifiers.h"

namespace kiln::runtime::emulator {
namespace {

// How two values may stand to each other; a comparison is the set of those that it accepts.
enum Relation : std::uint8_t { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

struct Comparison {
  std::string_view name;
  std::uint8_t accepts;
};
constexpr std::uint8_t kOrdered = kLess | kEqual | kGreater;
constexpr Comparison kComparisons[] = {
    {"eq", kEqual},
    {"ne", kLess | kGreater},
    {"lt", kLess},
    {"le", kLess | kEqual},
    {"gt", kGreater},
    {"ge", kGreater | kEqual},
    {"lo", kLess},
    {"ls", kLess | kEqual},
    {"hi", kGreater},
    {"hs", kGreater | kEqual},
    {"equ", kEqual | kUnordered},
    {"neu", kLess | kGreater | kUnordered},
    {"ltu", kLess | kUnordered},
    {"leu", kLess | kEqual | kUnordered},
    {"gtu", kGreater | kUnordered},
    {"geu", kGreater | kEqual | kUnordered},
    {"num", kOrdered},
    {"nan", kUnordered},
};
constexpr std::size_t kFirstUnsigned = 6, kFirstReal = 10;

template <class T>
std::uint8_t relation(T a, T b) {
  const int ordered = (a < b ? kLess : 0) | (a == b ? kEqual : 0) | (a > b ? kGreater : 0);
  return static_cast<std::uint8_t>(ordered != 0 ? ordered : kUnordered);
}

// Op::flags of a comparison: the accepted relations, and .ftz.
constexpr std::uint8_t kFtz = 0x80;
// Op::size: how the outcome is combined with the predicate op.c.
enum Combination : std::uint8_t { kAnd = 1, kOr = 2, kXor = 3, kCombination = 3, kInverted = 4 };

struct Half {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

// A row as numbers that compare, `shift` bits up its 32-bit lanes (packed halves).
template <class T>
auto number(Cell<T> cell, int shift, bool ftz) {
  if constexpr (std::is_same_v<T, Half>) {
    const auto bits = static_cast<std::uint16_t>(cell >> shift);
    // An f16 subnormal has no exponent bits.
    return f16_to_f32(ftz && (bits & 0x7c00) == 0 ? bits & 0x8000 : bits);
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return bf16_to_f32(static_cast<std::uint16_t>(cell >> shift));
  } else if constexpr (std::is_same_v<T, float>) {
    const float value = from_cell<float>(cell);
    return ftz ? flush(value) : value;
  } else {
    return from_cell<T>(cell);
  }
}

// The lanes where the comparison holds.
template <class T>
Mask compare(const Warp& warp, const Op& op, int shift = 0) {
  const Cell<T>* const a = row<T>(warp, op.a);
  const Cell<T>* const b = row<T>(warp, op.b);
  const bool ftz = (op.flags & kFtz) != 0;
  std::array<std::uint8_t, kLanes> holds;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    holds[lane] =
        op.flags & relation(number<T>(a[lane], shift, ftz), number<T>(b[lane], shift, ftz));
  }
  Mask result = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    result |= static_cast<Mask>((holds[lane] & 15) != 0) << lane;
  }
  return result;
}

Mask combine(const Warp& warp, const Op& op, Mask outcome) {
  if (op.size == 0) return outcome;
  const Mask other = PredicateSource{op.c, (op.size & kInverted) != 0}.lanes(warp);
  switch (op.size & kCombination) {
    case kAnd:
      return outcome & other;
    case kOr:
      return outcome | other;
    default:
      return outcome ^ other;
  }
}

// op.d: p; op.extra: q of p|q, which gets the negated outcome.
template <class T>
Flow setp(Warp& warp, const Op& op, Mask mask) {
  const Mask outcome = compare<T>(warp, op);
  const Mask p = combine(warp, op, outcome);
  const Mask q = op.extra != kNoRef ? combine(warp, op, ~outcome) : 0;
  if (op.d != kNoRef) warp.set_predicate(op.d, p, mask);
  if (op.extra != kNoRef) warp.set_predicate(op.extra, q, mask);
  return Flow::next;
}

// Of packed halves: p is the low half's outcome, q the high half's.
template <class T>
Flow setp_packed(Warp& warp, const Op& op, Mask mask) {
  const Mask p = combine(warp, op, compare<T>(warp, op, 0));
  const Mask q = combine(warp, op, compare<T>(warp, op, 16));
  if (op.d != kNoRef) warp.set_predicate(op.d, p, mask);
  if (op.extra != kNoRef) warp.set_predicate(op.extra, q, mask);
  return Flow::next;
}

// op.immediate: what is written for true.
template <class T>
Flow set(Warp& warp, const Op& op, Mask mask) {
  const Mask outcome = combine(warp, op, compare<T>(warp, op));
  if (op.d == kNoRef) return Flow::next;
  std::uint32_t* const to = warp.u32_out(op.d);
  const auto truth = static_cast<std::uint32_t>(op.immediate);
  for_each_lane(mask, [&](int lane) { to[lane] = (outcome >> lane & 1) != 0 ? truth : 0; });
  return Flow::next;
}

template <class T>
Flow set_packed(Warp& warp, const Op& op, Mask mask) {
  const Mask low = combine(warp, op, compare<T>(warp, op, 0));
  const Mask high = combine(warp, op, compare<T>(warp, op, 16));
  if (op.d == kNoRef) return Flow::next;
  std::uint32_t* const to = warp.u32_out(op.d);
  const auto truth = static_cast<std::uint32_t>(op.immediate) & 0xffff;
  for_each_lane(mask, [&](int lane) {
    to[lane] = ((low >> lane & 1) != 0 ? truth : 0) | ((high >> lane & 1) != 0 ? truth << 16 : 0);
  });
  return Flow::next;
}

struct CompareHandlers {
  Type type;
  Handler setp, set;
};
template <class T>
constexpr CompareHandlers handlers(Type type) {
  return {type, setp<T>, set<T>};
}
constexpr CompareHandlers kHandlers[] = {
    handlers<std::uint16_t>(Type::b16),
    handlers<std::uint32_t>(Type::b32),
    handlers<std::uint64_t>(Type::b64),
    handlers<std::uint16_t>(Type::u16),
    handlers<std::uint32_t>(Type::u32),
    handlers<std::uint64_t>(Type::u64),
    handlers<std::int16_t>(Type::s16),
    handlers<std::int32_t>(Type::s32),
    handlers<std::int64_t>(Type::s64),
    handlers<Half>(Type::f16),
    handlers<Bf16>(Type::bf16),
    handlers<float>(Type::f32),
    handlers<double>(Type::f64),
    {Type::f16x2, setp_packed<Half>, set_packed<Half>},
    {Type::bf16x2, setp_packed<Bf16>, set_packed<Bf16>},
};

const CompareHandlers& handlers_of(const Decoder& decoder, Type type) {
  for (const CompareHandlers& entry : kHandlers) {
    if (entry.type == type) return entry;
  }
  decoder.unknown();
}

std::uint8_t take_comparison(Decoder& decoder, Modifiers& modifiers, Type type) {
  const TypeClass type_class = info(type).type_class;
  for (std::size_t i = 0; i < std::size(kComparisons); ++i) {
    if (!modifiers.take(kComparisons[i].name)) continue;
    const bool fits = type_class == TypeClass::real ? i < kFirstUnsigned || i >= kFirstReal
                      : type_class == TypeClass::unsigned_integer ? i < kFirstReal
                      : type_class == TypeClass::signed_integer   ? i < kFirstUnsigned
                                                                  : i < 2;
    if (!fits) {
      decoder.fail("." + std::string(kComparisons[i].name) + " does not compare ." +
                   std::string(info(type).name));
    }
    return kComparisons[i].accepts;
  }
  decoder.fail("a comparison is missing");
}

// The parts that setp and set share: comparison, sources, and the third predicate.
void decode_comparison(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                       Type type, Op& op) {
  const bool combines = modifiers.take("and")   ? (op.size = kAnd, true)
                        : modifiers.take("or")  ? (op.size = kOr, true)
                        : modifiers.take("xor") ? (op.size = kXor, true)
                                                : false;
  const bool ftz = modifiers.take("ftz");
  if (ftz && type != Type::f32 && type != Type::f16 && type != Type::f16x2) decoder.unknown();
  op.flags =
      static_cast<std::uint8_t>(take_comparison(decoder, modifiers, type) | (ftz ? kFtz : 0));
  decoder.expect_operands(instruction, combines ? 4 : 3, combines ? 4 : 3);
  op.a = decoder.source(instruction.operands[1], type);
  op.b = decoder.source(instruction.operands[2], type);
  if (combines) {
    const PredicateSource other = predicate_source(decoder, instruction.operands[3]);
    op.c = other.ref;
    if (other.inverted) op.size |= kInverted;
  }
}

template <class T>
Flow selp(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  const Mask chosen = PredicateSource{op.c, op.flags != 0}.lanes(warp);
  const T* const a = row<T>(warp, op.a);
  const T* const b = row<T>(warp, op.b);
  T* const to = row_out<T>(warp, op.d);
  if (mask == kAllLanes) {
    T out[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      out[lane] = (chosen >> lane & 1) != 0 ? a[lane] : b[lane];
    }
    std::memcpy(to, out, sizeof out);
  } else {
    for_each_lane(mask,
                  [&](int lane) { to[lane] = (chosen >> lane & 1) != 0 ? a[lane] : b[lane]; });
  }
  return Flow::next;
}

// a where c >= 0, else b; op.flags: .ftz, which makes a negative subnormal zero.
template <class T, class C>
Flow slct(Warp& warp, const Op& op, Mask mask) {
  const bool ftz = op.flags != 0;
  Lanes<T, T, T, C>::map(warp, mask, op.d, {op.a, op.b, op.c}, [ftz](T a, T b, C c) {
    if constexpr (std::is_same_v<C, float>) return (ftz ? flush(c) : c) >= 0 ? a : b;
    return c >= 0 ? a : b;
  });
  return Flow::next;
}

}  // namespace

PredicateSource predicate_source(Decoder& decoder, const Operand& operand) {
  if (operand.is(Operand::Kind::integer)) return {kNoRef, operand.value != 0};
  if (!operand.is(Operand::Kind::reg)) decoder.fail("expected a predicate");
  return {decoder.predicate(operand), operand.negated};
}

void decode_setp(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  const CompareHandlers& family = handlers_of(decoder, type);
  decode_comparison(decoder, instruction, modifiers, type, op);
  modifiers.finish();
  const Operand& to = instruction.operands[0];
  op.extra = kNoRef;
  if (to.is(Operand::Kind::pair)) {
    op.d = decoder.predicate(to.items[0]);
    op.extra = decoder.predicate(to.items[1]);
  } else {
    op.d = decoder.predicate(to);
  }
  op.run = family.setp;
}

void decode_set(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const Type to = modifiers.take_type();
  const Type type = modifiers.take_type();
  const CompareHandlers& family = handlers_of(decoder, type);
  switch (to) {
    case Type::u16:
    case Type::s16:
      op.immediate = 0xffff;
      break;
    case Type::u32:
    case Type::s32:
      op.immediate = 0xffffffff;
      break;
    case Type::f32:
      op.immediate = 0x3f800000;
      break;
    case Type::f16:
    case Type::f16x2:
      op.immediate = 0x3c00;
      break;
    case Type::bf16:
    case Type::bf16x2:
      op.immediate = 0x3f80;
      break;
    default:
      decoder.unknown();
  }
  // Two outcomes need 32 bits for themselves, and one cannot fill a packed destination.
  const bool packed = type == Type::f16x2 || type == Type::bf16x2;
  const bool wide = to == Type::u32 || to == Type::s32;
  if (packed ? to != type && !wide : to == Type::f16x2 || to == Type::bf16x2) decoder.unknown();
  decode_comparison(decoder, instruction, modifiers, type, op);
  modifiers.finish();
  op.d = decoder.destination(instruction.operands[0], to);
  op.run = family.set;
}

void decode_selp(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 4, 4);
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  modifiers.finish();
  const int bits = info(type).bits;
  if (bits != 16 && bits != 32 && bits != 64) decoder.unknown();
  op.d = decoder.destination(instruction.operands[0], type);
  op.a = decoder.source(instruction.operands[1], type);
  op.b = decoder.source(instruction.operands[2], type);
  const PredicateSource chooser = predicate_source(decoder, instruction.operands[3]);
  op.c = chooser.ref;
  op.flags = chooser.inverted ? 1 : 0;
  op.run = bits == 64 ? selp<std::uint64_t> : selp<std::uint32_t>;
}

void decode_slct(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 4, 4);
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  const Type chooser = modifiers.take_type();
  const bool ftz = modifiers.take("ftz");
  modifiers.finish();
  const int bits = info(type).bits;
  if (bits != 16 && bits != 32 && bits != 64) decoder.unknown();
  if (chooser != Type::f32 && (chooser != Type::s32 || ftz)) decoder.unknown();
  op.d = decoder.destination(instruction.operands[0], type);
  op.a = decoder.source(instruction.operands[1], type);
  op.b = decoder.source(instruction.operands[2], type);
  op.c = decoder.source(instruction.operands[3], chooser);
  op.flags = ftz ? 1 : 0;
  if (bits == 64) {
    op.run = chooser == Type::f32 ? slct<std::uint64_t, float> : slct<std::uint64_t, std::int32_t>;
  } else {
    op.run = chooser == Type::f32 ? slct<std::uint32_t, float> : slct<std::uint32_t, std::int32_t>;
  }
}

}  // namespace kiln::runtime::emulator
