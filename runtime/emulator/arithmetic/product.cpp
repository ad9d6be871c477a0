// Integer products: low, high and wide, with a sum and carries; 24-bit products; dot products.
#include <algorithm>
#include <array>
#include <limits>

#include "runtime/emulator/arithmetic/arithmetic.h"
#include "runtime/emulator/arithmetic/exact.h"
#include "runtime/emulator/arithmetic/lanes.h"

namespace kiln::runtime::emulator {
namespace {

// The type of twice the bits.
template <class T>
struct DoubleOf;
template <>
struct DoubleOf<std::uint16_t> {
  using type = std::uint32_t;
};
template <>
struct DoubleOf<std::int16_t> {
  using type = std::int32_t;
};
template <>
struct DoubleOf<std::uint32_t> {
  using type = std::uint64_t;
};
template <>
struct DoubleOf<std::int32_t> {
  using type = std::int64_t;
};
template <>
struct DoubleOf<std::uint64_t> {
  using type = Wide;
};
template <>
struct DoubleOf<std::int64_t> {
  using type = SignedWide;
};
template <class T>
using Twice = typename DoubleOf<T>::type;

template <class T>
constexpr Twice<T> product(T a, T b) {
  return static_cast<Twice<T>>(a) * b;  // holds any product: cannot overflow
}
// Sums wrap: without sign.
template <class T>
constexpr T wrapping_add(T a, T b) {
  if constexpr (sizeof(T) <= 4) {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
}

struct Low {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(product(a, b));
  }
};
struct High {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(product(a, b) >> (8 * sizeof(T)));
  }
};
// Of the low 24 bits of the operands.
template <class T>
constexpr std::int64_t product24(T a, T b) {
  constexpr auto narrow = [](T x) {
    return static_cast<std::int64_t>(static_cast<T>(static_cast<std::uint32_t>(x) << 8) >> 8);
  };
  return narrow(a) * narrow(b);
}
struct Low24 {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(product24(a, b));
  }
};
struct High24 {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(product24(a, b) >> 16);
  }
};
template <class F>
struct Plus {
  template <class T>
  static constexpr T of(T a, T b, T c) {
    return wrapping_add(F::of(a, b), c);
  }
};
template <class F>
struct PlusSaturating {
  static constexpr std::int32_t of(std::int32_t a, std::int32_t b, std::int32_t c) {
    using Limits = std::numeric_limits<std::int32_t>;
    return static_cast<std::int32_t>(
        std::clamp<std::int64_t>(std::int64_t{F::of(a, b)} + c, Limits::min(), Limits::max()));
  }
};
template <class T>
constexpr Twice<T> wide_plus(T a, T b, Twice<T> c) {
  return wrapping_add(product(a, b), c);
}

template <class F, class T>
constexpr Handler kTwo = lanewise<F::template of<T>, T, T, T>;
template <class F, class T>
constexpr Handler kThree = lanewise<F::template of<T>, T, T, T, T>;
template <class F>
constexpr std::array<TypedHandler, 6> kProducts = {{
    {Type::u16, kTwo<F, std::uint16_t>},
    {Type::u32, kTwo<F, std::uint32_t>},
    {Type::u64, kTwo<F, std::uint64_t>},
    {Type::s16, kTwo<F, std::int16_t>},
    {Type::s32, kTwo<F, std::int32_t>},
    {Type::s64, kTwo<F, std::int64_t>},
}};
template <class F>
constexpr std::array<TypedHandler, 6> kSums = {{
    {Type::u16, kThree<Plus<F>, std::uint16_t>},
    {Type::u32, kThree<Plus<F>, std::uint32_t>},
    {Type::u64, kThree<Plus<F>, std::uint64_t>},
    {Type::s16, kThree<Plus<F>, std::int16_t>},
    {Type::s32, kThree<Plus<F>, std::int32_t>},
    {Type::s64, kThree<Plus<F>, std::int64_t>},
}};
template <class F>
constexpr std::array<TypedHandler, 2> kProducts24 = {{
    {Type::u32, kTwo<F, std::uint32_t>},
    {Type::s32, kTwo<F, std::int32_t>},
}};
template <class F>
constexpr std::array<TypedHandler, 2> kSums24 = {{
    {Type::u32, kThree<Plus<F>, std::uint32_t>},
    {Type::s32, kThree<Plus<F>, std::int32_t>},
}};

template <class T>
constexpr Handler kWide = lanewise<product<T>, Twice<T>, T, T>;
template <class T>
constexpr Handler kWidePlus = lanewise<wide_plus<T>, Twice<T>, T, T, Twice<T>>;
struct WideRow {
  Type source, destination;
  Handler multiply, multiply_add;
};
constexpr std::array<WideRow, 4> kWideRows = {{
    {Type::u16, Type::u32, kWide<std::uint16_t>, kWidePlus<std::uint16_t>},
    {Type::s16, Type::s32, kWide<std::int16_t>, kWidePlus<std::int16_t>},
    {Type::u32, Type::u64, kWide<std::uint32_t>, kWidePlus<std::uint32_t>},
    {Type::s32, Type::s64, kWide<std::int32_t>, kWidePlus<std::int32_t>},
}};

// mad.cc, madc, madc.cc: the carry of the final sum.
template <class T, class F, bool reads, bool writes>
Flow with_carry(Warp& warp, const Op& op, Mask mask) {
  using Bits = Cell<T>;
  const Bits *a = row<T>(warp, op.a), *b = row<T>(warp, op.b), *c = row<T>(warp, op.c);
  Mask flags = 0;
  for_each_lane(mask, [&](int l) {
    const auto part = std::bit_cast<Bits>(F::of(std::bit_cast<T>(a[l]), std::bit_cast<T>(b[l])));
    const Bits in = reads ? (warp.carry >> l) & 1u : 0;
    const Bits first = part + c[l], second = first + in;
    flags |= static_cast<Mask>(first < part || second < first) << l;
    if (op.d != kNoRef) row_out<T>(warp, op.d)[l] = second;
  });
  if (writes) warp.carry = (warp.carry & ~mask) | flags;
  return Flow::next;
}
template <class T, class F>
constexpr std::array<Handler, 3> kCarry = {
    with_carry<T, F, false, true>, with_carry<T, F, true, false>, with_carry<T, F, true, true>};
template <class F>
Handler carry_handler(Type type, bool reads, bool writes) {
  const std::size_t which = reads ? (writes ? 2 : 1) : 0;
  switch (type) {
    case Type::u32:
      return kCarry<std::uint32_t, F>[which];
    case Type::s32:
      return kCarry<std::int32_t, F>[which];
    case Type::u64:
      return kCarry<std::uint64_t, F>[which];
    case Type::s64:
      return kCarry<std::int64_t, F>[which];
    default:
      return nullptr;
  }
}

void decode_wide(Decoder& decoder, const Instruction& instruction, Op& op, Modifiers& modifiers) {
  const Type type = modifiers.take_type();
  modifiers.finish();
  for (const WideRow& entry : kWideRows) {
    if (entry.source != type) continue;
    if (instruction.opcode == "mul") {
      op.run = entry.multiply;
      return set_operands(decoder, instruction, op, entry.destination, {type, type});
    }
    op.run = entry.multiply_add;
    return set_operands(decoder, instruction, op, entry.destination,
                        {type, type, entry.destination});
  }
  decoder.unknown();
}

template <class F, class F24>
Handler choose(std::string_view opcode, Type type, bool saturates, bool writes_carry) {
  if (saturates) {  // mad.hi.sat.s32 and mad24.hi.sat.s32 only
    if (type != Type::s32 || std::is_same_v<F, Low>) return nullptr;
    using S = std::int32_t;
    if (opcode == "mad") return lanewise<PlusSaturating<F>::of, S, S, S, S>;
    if (opcode == "mad24") return lanewise<PlusSaturating<F24>::of, S, S, S, S>;
    return nullptr;
  }
  if (opcode == "madc" || writes_carry) {
    return opcode.substr(0, 3) == "mad" && opcode != "mad24"
               ? carry_handler<F>(type, opcode == "madc", writes_carry)
               : nullptr;
  }
  if (opcode == "mul") return find_handler(kProducts<F>, type);
  if (opcode == "mad") return find_handler(kSums<F>, type);
  if (opcode == "mul24") return find_handler(kProducts24<F24>, type);
  return find_handler(kSums24<F24>, type);
}

// dp4a, dp2a: bytes (or halves) of a times bytes of b, signed as their types say. The sum wraps.
constexpr std::int32_t part_of(std::uint32_t word, int index, int bits, bool is_signed) {
  const std::uint32_t top = word << (32 - bits * (index + 1));
  const int down = 32 - bits;
  return is_signed ? static_cast<std::int32_t>(top) >> down
                   : static_cast<std::int32_t>(top >> down);
}
Flow dot_product(Warp& warp, const Op& op, Mask mask) {
  const int count = op.size;
  const bool a_signed = (op.flags & 1) != 0, b_signed = (op.flags & 2) != 0;
  const int first = (op.flags & 4) != 0 ? 2 : 0;  // dp2a.hi: the upper bytes of b
  Lanes<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>::map(
      warp, mask, op.d, {op.a, op.b, op.c}, [=](std::uint32_t a, std::uint32_t b, std::uint32_t c) {
        for (int i = 0; i < count; ++i) {
          c += static_cast<std::uint32_t>(part_of(a, i, 32 / count, a_signed) *
                                          part_of(b, first + i, 8, b_signed));
        }
        return c;
      });
  return Flow::next;
}

void decode_dot(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const bool two = instruction.opcode == "dp2a";
  const int half = two ? modifiers.take_one_of({"lo", "hi"}) : 0;
  const Type a = modifiers.take_type(), b = modifiers.take_type();
  modifiers.finish();
  const auto allowed = [](Type type) { return type == Type::u32 || type == Type::s32; };
  if (half < 0 || !allowed(a) || !allowed(b)) decoder.unknown();
  op.flags = static_cast<std::uint8_t>((a == Type::s32 ? 1 : 0) | (b == Type::s32 ? 2 : 0) |
                                       (half == 1 ? 4 : 0));
  op.size = two ? 2 : 4;
  op.run = dot_product;
  set_operands(decoder, instruction, op, Type::b32, {Type::b32, Type::b32, Type::b32});
}

}  // namespace

void decode_product(Decoder& decoder, const Instruction& instruction, Op& op) {
  const std::string_view opcode = instruction.opcode;
  if (opcode == "dp4a" || opcode == "dp2a") return decode_dot(decoder, instruction, op);
  Modifiers modifiers(decoder, instruction);
  const int part = modifiers.take_one_of({"lo", "hi", "wide"});
  if (part < 0) decoder.unknown();
  if (part == 2) {
    if (opcode != "mul" && opcode != "mad") decoder.unknown();
    return decode_wide(decoder, instruction, op, modifiers);
  }
  const bool saturates = modifiers.take("sat"), writes_carry = modifiers.take("cc");
  const Type type = modifiers.take_type();
  modifiers.finish();
  set_handler(decoder, op,
              part == 0 ? choose<Low, Low24>(opcode, type, saturates, writes_carry)
                        : choose<High, High24>(opcode, type, saturates, writes_carry));
  if (opcode == "mul" || opcode == "mul24") {
    set_operands(decoder, instruction, op, type, {type, type});
  } else {
    set_operands(decoder, instruction, op, type, {type, type, type});
  }
}

}  // namespace kiln::runtime::emulator
