// mov in all its shapes, prmt, cvta, isspacep; the family's table.
#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/emulator/arithmetic/lanes.h"
#include "runtime/emulator/arithmetic/moves.h"
#include "runtime/emulator/decode/modifiers.h"

namespace kiln::runtime::emulator {
namespace {

template <class T>
Flow copy(Warp& warp, const Op& op, Mask mask) {
  return lanewise<[](T a) { return a; }, T, T>(warp, op, mask);
}

Flow copy_predicate(Warp& warp, const Op& op, Mask mask) {
  const PredicateSource source{op.a, op.flags != 0};
  warp.set_predicate(op.d, source.lanes(warp), mask);
  return Flow::next;
}

// op.extra: the register; op.size: bytes of the destination.
Flow copy_special(Warp& warp, const Op& op, Mask mask) {
  const auto index = static_cast<std::uint8_t>(op.extra);
  if (op.size == 8) {
    std::uint64_t* const to = warp.u64_out(op.d);
    for_each_lane(mask, [&](int lane) { to[lane] = read_special(warp, index, lane); });
    return Flow::next;
  }
  std::uint32_t* const to = warp.u32_out(op.d);
  const std::uint32_t keep = op.size == 2 ? 0xffff : ~0u;
  for_each_lane(mask, [&](int lane) {
    to[lane] = static_cast<std::uint32_t>(read_special(warp, index, lane)) & keep;
  });
  return Flow::next;
}

Flow copy_special_predicate(Warp& warp, const Op& op, Mask mask) {
  Mask value = 0;
  for_each_lane(mask, [&](int lane) {
    value |= static_cast<Mask>(read_special(warp, static_cast<std::uint8_t>(op.extra), lane))
             << lane;
  });
  warp.set_predicate(op.d, value, mask);
  return Flow::next;
}

void decode_special(Decoder& decoder, const Instruction& instruction, Type type, Op& op) {
  const SpecialRegister special = special_register(instruction.operands[1].name);
  if (!special.known) {
    decoder.fail("the emulator does not model the special register " +
                 std::string(instruction.operands[1].name));
  }
  if (special.predicate != (type == Type::pred)) decoder.fail("is of another type");
  op.extra = special.index;
  op.size = static_cast<std::uint8_t>(bytes_of(type));
  op.d = special.predicate ? decoder.predicate(instruction.operands[0])
                           : decoder.destination(instruction.operands[0], type);
  if (op.d == kNoRef) decoder.fail("expected a register to write to");
  op.run = special.predicate ? copy_special_predicate : copy_special;
}

// One element of a lane's row, of a register of `bits` bits.
std::uint64_t get(const Warp& warp, Ref ref, int bits, int lane) {
  return bits == 64 ? warp.u64(ref)[lane] : warp.u32(ref)[lane];
}
void put(Warp& warp, Ref ref, int bits, int lane, std::uint64_t value) {
  if (bits == 64) {
    warp.u64_out(ref)[lane] = value;
  } else {
    warp.u32_out(ref)[lane] = static_cast<std::uint32_t>(value);
  }
}

// mov.b64 {%r1, %r2}, %rd1: op.size elements of op.flags bits, the first from the low end.
Flow unpack(Warp& warp, const Op& op, Mask mask) {
  const std::span<const Ref> elements = warp.list(op);
  const int bits = op.flags;
  const int total = bits * op.size;
  const std::uint64_t keep = (std::uint64_t{1} << bits) - 1;
  // The source may be one of the destinations: all of it is read first.
  std::array<std::uint64_t, kLanes> value{};
  for_each_lane(mask, [&](int lane) {
    value[static_cast<std::size_t>(lane)] = get(warp, op.a, total, lane);
  });
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] == kNoRef) continue;
    const int shift = static_cast<int>(i) * bits;
    std::uint32_t* const to = warp.u32_out(elements[i]);
    for_each_lane(mask, [&](int lane) {
      to[lane] = static_cast<std::uint32_t>(value[static_cast<std::size_t>(lane)] >> shift & keep);
    });
  }
  return Flow::next;
}

Flow pack(Warp& warp, const Op& op, Mask mask) {
  const std::span<const Ref> elements = warp.list(op);
  const int bits = op.flags;
  const std::uint64_t keep = (std::uint64_t{1} << bits) - 1;
  std::array<std::uint64_t, kLanes> value{};
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::uint32_t* const from = warp.u32(elements[i]);
    const int shift = static_cast<int>(i) * bits;
    for (std::size_t lane = 0; lane < kLanes; ++lane) value[lane] |= (from[lane] & keep) << shift;
  }
  for_each_lane(mask, [&](int lane) {
    put(warp, op.d, bits * op.size, lane, value[static_cast<std::size_t>(lane)]);
  });
  return Flow::next;
}

Type bits_type(int bits) {
  return bits == 8 ? Type::b8 : bits == 16 ? Type::b16 : bits == 32 ? Type::b32 : Type::b64;
}

// A vector on one side of mov: {a, b} or {a, b, c, d} of equal shares of the type.
void decode_pack(Decoder& decoder, const Instruction& instruction, Type type, Op& op) {
  const Operand& to = instruction.operands[0];
  const Operand& from = instruction.operands[1];
  const bool packs = from.is(Operand::Kind::vector);
  const std::size_t count = (packs ? from : to).items.size();
  const int total = info(type).bits;
  // .b128 registers are not modelled.
  if (info(type).type_class != TypeClass::bits || total > 64) decoder.unknown();
  if ((count != 2 && count != 4) || total / static_cast<int>(count) < 8) {
    decoder.fail("expected a vector of 2 or 4 elements, of 8 bits or more");
  }
  const int bits = total / static_cast<int>(count);
  op.size = static_cast<std::uint8_t>(count);
  op.flags = static_cast<std::uint8_t>(bits);
  if (packs) {
    for (const Operand& item : from.items) {
      if (item.is(Operand::Kind::sink)) decoder.fail("a sink cannot be read");
    }
    op.d = decoder.destination(to, type);
    if (op.d == kNoRef) decoder.fail("expected a register to write to");
    std::tie(op.list, op.list_size) = decoder.sources(from, bits_type(bits));
    op.run = pack;
  } else {
    op.a = decoder.source(from, type);
    std::tie(op.list, op.list_size) = decoder.destinations(to, bits_type(bits));
    op.run = unpack;
  }
}

// Permutations of the 8 bytes of {b, a}, by mode and the selector's low two bits: four nibbles.
constexpr std::uint16_t kPermutations[][4] = {
    {0x3210, 0x4321, 0x5432, 0x6543},  // f4e: forward 4 extract
    {0x5670, 0x6701, 0x7012, 0x0123},  // b4e: backward 4 extract
    {0x0000, 0x1111, 0x2222, 0x3333},  // rc8: replicate 8
    {0x3210, 0x3211, 0x3222, 0x3333},  // ecl: edge clamp left
    {0x0000, 0x1110, 0x2210, 0x3210},  // ecr: edge clamp right
    {0x1010, 0x3232, 0x1010, 0x3232},  // rc16: replicate 16
};

std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t choice = selector >> (4 * i);
    const auto byte = static_cast<std::uint32_t>(bytes >> (8 * (choice & 7)) & 0xff);
    const std::uint32_t sign = byte >> 7 != 0 ? 0xff : 0;
    result |= ((choice & 8) != 0 ? sign : byte) << (8 * i);
  }
  return result;
}

// op.flags: 0 = by nibbles of the selector, else 1 + the row of kPermutations.
Flow prmt(Warp& warp, const Op& op, Mask mask) {
  using Row = Lanes<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  if (op.flags == 0) {
    Row::map(warp, mask, op.d, {op.a, op.b, op.c}, permute);
    return Flow::next;
  }
  const std::uint16_t* const modes = kPermutations[op.flags - 1];
  Row::map(warp, mask, op.d, {op.a, op.b, op.c},
           [modes](std::uint32_t a, std::uint32_t b, std::uint32_t c) {
             return permute(a, b, modes[c & 3]);
           });
  return Flow::next;
}

// Of a window's own addresses and generic ones; op.immediate: the window's base.
Flow to_window(Warp& warp, const Op& op, Mask mask) {
  const auto window = static_cast<std::uint64_t>(op.immediate);
  Lanes<std::uint64_t, std::uint64_t>::map(warp, mask, op.d, {op.a},
                                           [window](std::uint64_t a) { return a | window; });
  return Flow::next;
}
Flow from_window(Warp& warp, const Op& op, Mask mask) {
  const auto window = static_cast<std::uint64_t>(op.immediate);
  Lanes<std::uint64_t, std::uint64_t>::map(warp, mask, op.d, {op.a},
                                           [window](std::uint64_t a) { return a & ~window; });
  return Flow::next;
}

// The kinds of address that isspacep tells apart.
enum class Window : std::uint8_t { global, shared_cluster, shared_cta, local, param };

bool is_within(const Warp& warp, Window window, std::uint64_t address) {
  constexpr std::uint64_t kWindowBits = 0xf000'0000'0000'0000u;
  const std::uint64_t which = address & kWindowBits;
  switch (window) {
    case Window::global:
      return which == 0;
    case Window::shared_cluster:
      return which == kSharedWindow;
    case Window::shared_cta:
      return which == kSharedWindow && static_cast<std::uint32_t>(address) >> kRankShift ==
                                           static_cast<std::uint32_t>(warp.block().rank());
    case Window::local:
      return which == kLocalWindow;
    case Window::param:
      return which == kParamWindow;
  }
  return false;
}

Flow isspacep(Warp& warp, const Op& op, Mask mask) {
  const std::uint64_t* const address = warp.u64(op.a);
  Mask value = 0;
  for_each_lane(mask, [&](int lane) {
    if (is_within(warp, static_cast<Window>(op.flags), address[lane])) value |= Mask{1} << lane;
  });
  if (op.d != kNoRef) warp.set_predicate(op.d, value, mask);
  return Flow::next;
}

}  // namespace

void decode_mov(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 2, 2);
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  modifiers.finish();
  const Operand& to = instruction.operands[0];
  const Operand& from = instruction.operands[1];
  const int bits = info(type).bits;
  if (type == Type::none) decoder.fail("mov needs a type");
  if (from.is(Operand::Kind::special)) return decode_special(decoder, instruction, type, op);
  if (to.is(Operand::Kind::vector) || from.is(Operand::Kind::vector)) {
    return decode_pack(decoder, instruction, type, op);
  }
  if (type == Type::pred) {
    const PredicateSource source = predicate_source(decoder, from);
    op.d = decoder.predicate(to);
    if (op.d == kNoRef) decoder.fail("expected a predicate to write to");
    op.a = source.ref;
    op.flags = source.inverted ? 1 : 0;
    op.run = copy_predicate;
    return;
  }
  if (bits > 64 || bits < 16) decoder.unknown();
  op.d = decoder.destination(to, type);
  if (from.is(Operand::Kind::symbol) && bits == 32) {
    // A shared address: its row is made for 64 bits.
    op.a = decoder.source(from, Type::u64);
    op.run = lanewise<[](std::uint64_t a) { return static_cast<std::uint32_t>(a); }, std::uint32_t,
                      std::uint64_t>;
    return;
  }
  op.a = decoder.source(from, type);
  op.run = bits == 64 ? copy<std::uint64_t> : copy<std::uint32_t>;
}

void decode_prmt(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 4, 4);
  Modifiers modifiers(decoder, instruction);
  if (!modifiers.take("b32")) decoder.unknown();
  op.flags = static_cast<std::uint8_t>(
      1 + modifiers.take_one_of({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}));
  modifiers.finish();
  op.d = decoder.destination(instruction.operands[0], Type::b32);
  op.a = decoder.source(instruction.operands[1], Type::b32);
  op.b = decoder.source(instruction.operands[2], Type::b32);
  op.c = decoder.source(instruction.operands[3], Type::b32);
  op.run = prmt;
}

void decode_cvta(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 2, 2);
  Modifiers modifiers(decoder, instruction);
  const bool to = modifiers.take("to");
  const int space = modifiers.take_one_of({"global", "const", "shared", "shared::cta",
                                           "shared::cluster", "local", "param", "param::entry"});
  // Generic addresses have 64 bits; those of .u32 belong to 32-bit modules.
  if (space < 0 || modifiers.take_type() != Type::u64) decoder.unknown();
  modifiers.finish();
  constexpr std::uint64_t kWindows[] = {
      0, 0, kSharedWindow, kSharedWindow, kSharedWindow, kLocalWindow, kParamWindow, kParamWindow};
  op.immediate = static_cast<std::int64_t>(kWindows[space]);
  op.d = decoder.destination(instruction.operands[0], Type::u64);
  op.a = decoder.source(instruction.operands[1], Type::u64);
  op.run = kWindows[space] == 0 ? copy<std::uint64_t> : to ? from_window : to_window;
}

void decode_isspacep(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 2, 2);
  Modifiers modifiers(decoder, instruction);
  // .const: constant variables have global addresses here, so it cannot be told.
  const int space = modifiers.take_one_of(
      {"global", "shared::cluster", "shared", "shared::cta", "local", "param", "param::entry"});
  if (space < 0) decoder.unknown();
  modifiers.finish();
  constexpr Window kWindows[] = {Window::global,     Window::shared_cluster, Window::shared_cta,
                                 Window::shared_cta, Window::local,          Window::param,
                                 Window::param};
  op.flags = static_cast<std::uint8_t>(kWindows[space]);
  op.d = decoder.predicate(instruction.operands[0]);
  op.a = decoder.source(instruction.operands[1], Type::u64);
  op.run = isspacep;
}

std::span<const OpcodeRow> move_opcodes() {
  static constexpr OpcodeRow kRows[] = {
      {"mov", decode_mov},   {"selp", decode_selp}, {"slct", decode_slct},
      {"setp", decode_setp}, {"set", decode_set},   {"prmt", decode_prmt},
      {"cvt", decode_cvt},   {"cvta", decode_cvta}, {"isspacep", decode_isspacep},
  };
  return kRows;
}

}  // namespace kiln::runtime::emulator
