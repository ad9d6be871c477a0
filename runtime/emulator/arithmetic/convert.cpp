// cvt: which conversion an instruction asks for (PTX ISA, "Data Movement and Conversion
// Instructions: cvt"); the conversions themselves are in convert_values.h.
#include "runtime/emulator/arithmetic/convert_values.h"

#include <array>
#include <iterator>

#include "runtime/emulator/arithmetic/lanes.h"
#include "runtime/emulator/arithmetic/moves.h"
#include "runtime/emulator/decode/modifiers.h"

namespace kiln::runtime::emulator {
namespace {

// Op::flags.
enum Flag : std::uint8_t { kFtz = 1, kSat = 2, kSatfinite = 4, kRelu = 8, kIntegral = 16 };

Conversion conversion_of(const Op& op) {
  Conversion how;
  how.from = static_cast<Type>(op.extra & 0xff);
  how.to = op.type;
  how.rounding = static_cast<Rounding>(op.size);
  how.ftz = (op.flags & kFtz) != 0;
  how.saturate = (op.flags & kSat) != 0;
  how.satfinite = (op.flags & kSatfinite) != 0;
  how.relu = (op.flags & kRelu) != 0;
  how.to_integral = (op.flags & kIntegral) != 0;
  how.width = static_cast<int>(op.immediate);
  return how;
}

std::uint64_t cell(const Warp& warp, Ref ref, bool wide, int lane) {
  return wide ? warp.u64(ref)[lane] : warp.u32(ref)[lane];
}
void set_cell(Warp& warp, Ref ref, bool wide, int lane, std::uint64_t value) {
  if (wide) {
    warp.u64_out(ref)[lane] = value;
  } else {
    warp.u32_out(ref)[lane] = static_cast<std::uint32_t>(value);
  }
}

// Op::extra beyond the source's type: its register has 64 bits.
constexpr std::uint32_t kWideSource = 0x100;

using Convert = std::uint64_t (*)(const Conversion& how, std::uint64_t bits);

template <Convert F>
Flow convert(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  const Conversion how = conversion_of(op);
  const bool wide_source = (op.extra & kWideSource) != 0;
  for_each_lane(mask, [&](int lane) {
    set_cell(warp, op.d, how.width == 64, lane, F(how, cell(warp, op.a, wide_source, lane)));
  });
  return Flow::next;
}

// op.b: the special register's number.
Flow convert_special(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  const Conversion how = conversion_of(op);
  for_each_lane(mask, [&](int lane) {
    const std::uint64_t value = read_special(warp, static_cast<std::uint8_t>(op.b), lane);
    set_cell(warp, op.d, how.width == 64, lane, integer_to_integer(how, value));
  });
  return Flow::next;
}

// Two f32 to a packed pair: a becomes the upper element. how.to: an element's type.
Flow convert_two(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  const Conversion how = conversion_of(op);
  const int bits = info(how.to).bits;
  Lanes<std::uint32_t, std::uint32_t, std::uint32_t>::map(
      warp, mask, op.d, {op.a, op.b}, [&](std::uint32_t a, std::uint32_t b) {
        return static_cast<std::uint32_t>(real_to_real(how, a) << bits | real_to_real(how, b));
      });
  return Flow::next;
}

// A packed pair to another one.
Flow convert_packed(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  const Conversion how = conversion_of(op);
  const int from = info(how.from).bits;
  const int to = info(how.to).bits;
  Lanes<std::uint32_t, std::uint32_t>::map(warp, mask, op.d, {op.a}, [&](std::uint32_t a) {
    const std::uint32_t keep = (1u << from) - 1;
    return static_cast<std::uint32_t>(real_to_real(how, a >> from & keep) << to |
                                      real_to_real(how, a & keep));
  });
  return Flow::next;
}

// cvt.pack: two s32 saturated to op.size bits, signed or not (op.flags), above them the low bits
// of c.
Flow convert_pack(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  const int bits = op.size;
  const bool is_signed_result = op.flags != 0;
  const std::int64_t least = is_signed_result ? -(std::int64_t{1} << (bits - 1)) : 0;
  const std::int64_t most = (std::int64_t{1} << (is_signed_result ? bits - 1 : bits)) - 1;
  const auto narrow = [=](std::uint32_t cell_bits) {
    const std::int64_t value = static_cast<std::int32_t>(cell_bits);
    const std::int64_t held = value < least ? least : value > most ? most : value;
    return static_cast<std::uint32_t>(held) & ((1u << bits) - 1);
  };
  Lanes<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>::map(
      warp, mask, op.d, {op.a, op.b, op.c}, [=](std::uint32_t a, std::uint32_t b, std::uint32_t c) {
        const std::uint32_t above = bits == 16 ? 0 : c << (2 * bits);
        return above | narrow(a) << bits | narrow(b);
      });
  return Flow::next;
}

// The frequent conversions, without decisions in the loop.

template <class D, class S>
Flow cast(Warp& warp, const Op& op, Mask mask) {
  return lanewise<[](S a) { return static_cast<D>(a); }, D, S>(warp, op, mask);
}

struct Cast {
  Type to, from;
  Handler run;
};
template <class S>
constexpr std::array<Cast, 8> casts_from(Type from) {
  return {Cast{Type::u8, from, cast<std::uint8_t, S>}, {Type::s8, from, cast<std::int8_t, S>},
          {Type::u16, from, cast<std::uint16_t, S>},   {Type::s16, from, cast<std::int16_t, S>},
          {Type::u32, from, cast<std::uint32_t, S>},   {Type::s32, from, cast<std::int32_t, S>},
          {Type::u64, from, cast<std::uint64_t, S>},   {Type::s64, from, cast<std::int64_t, S>}};
}
constexpr std::array<Cast, 8> kIntegerCasts[] = {
    casts_from<std::uint8_t>(Type::u8),   casts_from<std::int8_t>(Type::s8),
    casts_from<std::uint16_t>(Type::u16), casts_from<std::int16_t>(Type::s16),
    casts_from<std::uint32_t>(Type::u32), casts_from<std::int32_t>(Type::s32),
    casts_from<std::uint64_t>(Type::u64), casts_from<std::int64_t>(Type::s64),
};

// To nearest even, no other modifier.
constexpr Cast kPlainCasts[] = {
    {Type::f32, Type::s32, cast<float, std::int32_t>},
    {Type::f32, Type::u32, cast<float, std::uint32_t>},
    {Type::f64, Type::s32, cast<double, std::int32_t>},
    {Type::f64, Type::u32, cast<double, std::uint32_t>},
    {Type::f16, Type::f32, lanewise<f32_to_f16, std::uint16_t, float>},
    {Type::bf16, Type::f32, lanewise<f32_to_bf16, std::uint16_t, float>},
    {Type::f32, Type::f16,
     lanewise<[](std::uint16_t a) { return canonical(f16_to_f32(a)); }, float, std::uint16_t>},
};
constexpr Cast kPlainPacks[] = {
    {Type::f16x2, Type::f32,
     lanewise<[](float a, float b) {
       return static_cast<std::uint32_t>(f32_to_f16(a)) << 16 | f32_to_f16(b);
     },
              std::uint32_t, float, float>},
    {Type::bf16x2, Type::f32,
     lanewise<[](float a, float b) {
       return static_cast<std::uint32_t>(f32_to_bf16(a)) << 16 | f32_to_bf16(b);
     },
              std::uint32_t, float, float>},
};

Handler find_cast(std::span<const Cast> casts, Type to, Type from) {
  for (const Cast& each : casts) {
    if (each.to == to && each.from == from) return each.run;
  }
  return nullptr;
}

Handler find_integer_cast(Type to, Type from) {
  for (const auto& casts : kIntegerCasts) {
    if (casts[0].from == from) return find_cast(casts, to, from);
  }
  return nullptr;
}

// Decoding.

bool is_integer(Type type) {
  const TypeClass type_class = info(type).type_class;
  return type_class == TypeClass::signed_integer || type_class == TypeClass::unsigned_integer;
}
bool is_scalar_real(Type type) {
  return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::f64;
}

// The elements of a packed pair, or none.
Type element(Type type) {
  switch (type) {
    case Type::f16x2:
      return Type::f16;
    case Type::bf16x2:
      return Type::bf16;
    case Type::e4m3x2:
      return Type::e4m3;
    case Type::e5m2x2:
      return Type::e5m2;
    default:
      return Type::none;
  }
}

// What the modifiers say, and whether a floating-point rounding is among it.
struct Request {
  Type to = Type::none, from = Type::none;
  bool rounds = false;
  Rounding rounding = Rounding::rn;
  std::uint8_t flags = 0;

  bool plain() const { return flags == 0 && rounding == Rounding::rn; }
};

Request read_request(Modifiers& modifiers) {
  Request request;
  request.to = modifiers.take_type();
  request.from = modifiers.take_type();
  constexpr Rounding kIntegralModes[] = {Rounding::rn, Rounding::rz, Rounding::rm, Rounding::rp};
  const int integral = modifiers.take_one_of({"rni", "rzi", "rmi", "rpi"});
  if (integral >= 0) {
    request.rounding = kIntegralModes[integral];
    request.flags |= kIntegral;
  } else {
    constexpr Rounding kModes[] = {Rounding::rn, Rounding::rna, Rounding::rz, Rounding::rm,
                                   Rounding::rp};
    const int mode = modifiers.take_one_of({"rn", "rna", "rz", "rm", "rp"});
    request.rounds = mode >= 0;
    if (mode >= 0) request.rounding = kModes[mode];
  }
  if (modifiers.take("ftz")) request.flags |= kFtz;
  if (modifiers.take("sat")) request.flags |= kSat;
  if (modifiers.take("satfinite")) request.flags |= kSatfinite;
  if (modifiers.take("relu")) request.flags |= kRelu;
  modifiers.finish();
  return request;
}

// Combinations that PTX does not have either.
void check_modifiers(const Decoder& decoder, const Request& request) {
  const bool f32 = request.to == Type::f32 || request.from == Type::f32;
  if ((request.flags & kFtz) != 0 && !f32) decoder.fail(".ftz is for conversions of .f32");
  if (request.rounding == Rounding::rna && request.to != Type::tf32) decoder.unknown();
  const bool to_real = request.to == Type::tf32 || request.to == Type::f16 ||
                       request.to == Type::bf16 || element(request.to) != Type::none;
  if ((request.flags & (kRelu | kSatfinite)) != 0 && !to_real) decoder.unknown();
}

void decode_pair(Decoder& decoder, const Instruction& instruction, const Request& request, Op& op) {
  const Type from_element = element(request.from);
  op.type = element(request.to);
  const bool to8 = request.to == Type::e4m3x2 || request.to == Type::e5m2x2;
  const bool from8 = request.from == Type::e4m3x2 || request.from == Type::e5m2x2;
  if ((request.flags & (kIntegral | kSat | kFtz)) != 0 || !request.rounds) decoder.unknown();
  if (to8 && ((request.flags & kSatfinite) == 0 || request.rounding != Rounding::rn)) {
    decoder.fail("a conversion to 8 bits is .rn.satfinite");
  }
  op.d = decoder.destination(instruction.operands[0], to8 ? Type::b16 : Type::b32);
  if (request.from == Type::f32) {
    decoder.expect_operands(instruction, 3, 3);
    op.extra = static_cast<std::uint32_t>(Type::f32);
    op.a = decoder.source(instruction.operands[1], Type::f32);
    op.b = decoder.source(instruction.operands[2], Type::f32);
    op.run = convert_two;
    if (request.plain()) {
      const Handler plain = find_cast(kPlainPacks, request.to, request.from);
      if (plain != nullptr) op.run = plain;
    }
    return;
  }
  decoder.expect_operands(instruction, 2, 2);
  // Between f16x2 and the 8-bit formats.
  if (!(to8 && request.from == Type::f16x2) && !(from8 && request.to == Type::f16x2)) {
    decoder.unknown();
  }
  op.extra = static_cast<std::uint32_t>(from_element);
  op.a = decoder.source(instruction.operands[1], from8 ? Type::b16 : Type::b32);
  op.run = convert_packed;
}

// The type by which a scalar operand's row is read: registers may be wider than the instruction's
// type.
Type row_type(const Decoder& decoder, const Operand& operand, Type type) {
  const Type declared = decoder.register_type(operand);
  if (declared == Type::none || declared == Type::pred) return type;
  if (info(declared).bits < info(type).bits) {
    decoder.fail(std::string(operand.name) + " is too narrow for ." + std::string(info(type).name));
  }
  return declared;
}

Handler choose_scalar(const Decoder& decoder, const Request& request, bool registers_fit) {
  const bool plain = request.plain() && registers_fit;
  if (is_integer(request.from) && is_integer(request.to)) {
    if (request.rounds || (request.flags & ~kSat) != 0) decoder.unknown();
    return plain ? find_integer_cast(request.to, request.from) : convert<integer_to_integer>;
  }
  if (is_integer(request.from)) {
    if (!request.rounds) decoder.fail("a rounding mode is missing");
    if ((request.flags & ~(kSat | kFtz)) != 0) decoder.unknown();
    const Handler fast = plain ? find_cast(kPlainCasts, request.to, request.from) : nullptr;
    return fast != nullptr ? fast : convert<integer_to_real>;
  }
  if (is_integer(request.to)) {
    if ((request.flags & kIntegral) == 0) decoder.fail("an integer rounding mode is missing");
    if ((request.flags & (kRelu | kSatfinite)) != 0) decoder.unknown();
    return convert<real_to_integer>;
  }
  const bool integral = (request.flags & kIntegral) != 0;
  if (integral && request.to != request.from) decoder.unknown();
  const bool widens = info(request.to).bits > info(request.from).bits;
  if (!integral && !widens && request.to != request.from && !request.rounds) {
    decoder.fail("a rounding mode is missing");
  }
  const Handler fast = plain ? find_cast(kPlainCasts, request.to, request.from) : nullptr;
  return fast != nullptr ? fast : convert<real_to_real>;
}

void decode_scalar(Decoder& decoder, const Instruction& instruction, const Request& request,
                   Op& op) {
  decoder.expect_operands(instruction, 2, 2);
  const Operand& to = instruction.operands[0];
  const Operand& from = instruction.operands[1];
  const auto is_known = [](Type type) { return is_integer(type) || is_scalar_real(type); };
  const bool to_tf32 = request.to == Type::tf32 && request.from == Type::f32;
  if (!(is_known(request.to) || to_tf32) || !is_known(request.from)) decoder.unknown();
  // There is no conversion between bf16 and 8-bit integers.
  const bool bf16 = request.to == Type::bf16 || request.from == Type::bf16;
  if (bf16 && (info(request.to).bits == 8 || info(request.from).bits == 8)) decoder.unknown();
  if (info(request.to).name.ends_with("x2") || info(request.from).name.ends_with("x2")) {
    decoder.unknown();
  }
  const Type to_row = row_type(decoder, to, request.to);
  op.d = decoder.destination(to, to_row);
  op.immediate = info(to_row).bits;
  op.type = request.to;
  op.extra = static_cast<std::uint32_t>(request.from);
  if (from.is(Operand::Kind::special)) {
    const SpecialRegister special = special_register(from.name);
    if (!special.known || special.predicate || !is_integer(request.to) ||
        !is_integer(request.from)) {
      decoder.fail("the special register " + std::string(from.name) + " is read with mov");
    }
    op.b = special.index;
    op.run = convert_special;
    return;
  }
  const Type from_row = row_type(decoder, from, request.from);
  op.a = decoder.source(from, from_row);
  if (info(from_row).bits == 64) op.extra |= kWideSource;
  // A narrow signed result fills a wider register with its sign.
  const bool registers_fit = (info(from_row).bits == 64) == (info(request.from).bits == 64) &&
                             (info(to_row).bits == 64) == (info(request.to).bits == 64) &&
                             (info(to_row).bits == info(request.to).bits || !is_signed(request.to));
  op.run = choose_scalar(decoder, request, registers_fit);
}

void decode_cvt_pack(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                     Op& op) {
  if (!modifiers.take("sat")) decoder.unknown();
  constexpr std::uint8_t kBits[] = {16, 16, 8, 8, 4, 4, 2, 2};
  const int kind = modifiers.take_one_of({"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"});
  if (kind < 0 || !modifiers.take("s32")) decoder.unknown();
  const bool takes_c = modifiers.take("b32");
  modifiers.finish();
  op.size = kBits[kind];
  op.flags = kind % 2 == 1 ? 1 : 0;
  if (takes_c != (op.size < 16)) decoder.unknown();
  decoder.expect_operands(instruction, takes_c ? 4 : 3, takes_c ? 4 : 3);
  op.d = decoder.destination(instruction.operands[0], Type::b32);
  op.a = decoder.source(instruction.operands[1], Type::s32);
  op.b = decoder.source(instruction.operands[2], Type::s32);
  op.c = takes_c ? decoder.source(instruction.operands[3], Type::b32) : decoder.constant32(0);
  op.run = convert_pack;
}

}  // namespace

void decode_cvt(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  if (modifiers.take("pack")) return decode_cvt_pack(decoder, instruction, modifiers, op);
  const Request request = read_request(modifiers);
  check_modifiers(decoder, request);
  op.size = static_cast<std::uint8_t>(request.rounding);
  op.flags = request.flags;
  if (element(request.to) != Type::none) {
    decode_pair(decoder, instruction, request, op);
  } else {
    decode_scalar(decoder, instruction, request, op);
  }
}

}  // namespace kiln::runtime::emulator
