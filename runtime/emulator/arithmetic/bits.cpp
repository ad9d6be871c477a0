// Counting, finding, extracting and inserting bits.
#include <algorithm>
#include <array>
#include <bit>

#include "runtime/emulator/arithmetic/arithmetic.h"
#include "runtime/emulator/arithmetic/lanes.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint32_t kNotFound = 0xffffffffu;

template <class T>
constexpr std::uint32_t ones(T a) {
  return static_cast<std::uint32_t>(std::popcount(a));
}
template <class T>
constexpr std::uint32_t leading_zeros(T a) {
  return static_cast<std::uint32_t>(std::countl_zero(a));
}
// bfind: the highest bit that differs from the sign (that is set, without one); as the number of
// left shifts that bring it to the top for .shiftamt.
template <class T, bool as_shift>
constexpr std::uint32_t highest_bit(T a) {
  const auto bits = static_cast<std::make_unsigned_t<T>>(a < T{0} ? ~a : a);
  if (bits == 0) return kNotFound;
  const auto zeros = leading_zeros(bits);
  return as_shift ? zeros : static_cast<std::uint32_t>(8 * sizeof(T) - 1) - zeros;
}
template <class T>
constexpr T reversed(T a) {
  T result = 0;
  for (std::size_t i = 0; i < 8 * sizeof(T); ++i) {
    result = static_cast<T>(result << 1) | ((a >> i) & 1);
  }
  return result;
}

// bfe and bfi of 32 bits use the low bytes of position and length; those of 64 bits use, on an
// H200, all of them. Both may exceed the word; here they are cut where more makes no difference.
template <class T>
constexpr std::uint32_t in_word(std::uint32_t count) {
  constexpr std::uint32_t bits = 8 * sizeof(T);
  return std::min(bits == 64 ? count : count & 0xff, bits);
}
template <class T>
constexpr T low_bits(std::uint32_t count) {
  return count >= 8 * sizeof(T) ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
}
template <class T>
constexpr T extract(T a, std::uint32_t position, std::uint32_t length) {
  using Bits = std::make_unsigned_t<T>;
  constexpr std::uint32_t last = 8 * sizeof(T) - 1;
  position = in_word<T>(position);
  length = in_word<T>(length);
  const auto bits = static_cast<Bits>(a);
  const Bits keep = low_bits<Bits>(length);
  const Bits field = position > last ? Bits{0} : static_cast<Bits>((bits >> position) & keep);
  if constexpr (std::is_signed_v<T>) {
    if (length == 0) return 0;
    const bool sign = ((bits >> std::min(position + length - 1, last)) & 1) != 0;
    // The sign fills what lies beyond the field, and what of the field lies beyond the word.
    const Bits inside =
        position > last ? Bits{0} : static_cast<Bits>(keep & (~Bits{0} >> position));
    return static_cast<T>(sign ? static_cast<Bits>(field | ~inside) : field);
  } else {
    return field;
  }
}
template <class T>
constexpr T insert(T a, T b, std::uint32_t position, std::uint32_t length) {
  position = in_word<T>(position);
  if (position >= 8 * sizeof(T)) return b;
  const T where = static_cast<T>(low_bits<T>(in_word<T>(length)) << position);
  return static_cast<T>((b & ~where) | (static_cast<T>(a << position) & where));
}
template <class T>
Flow insert_bits(Warp& warp, const Op& op, Mask mask) {
  // f, a, b, position in op.c, length in the list.
  using Row = Lanes<T, T, T, std::uint32_t, std::uint32_t>;
  Row::map(warp, mask, op.d, {op.a, op.b, op.c, warp.list(op)[0]}, insert<T>);
  return Flow::next;
}

template <bool clamps>
constexpr std::uint32_t bit_mask(std::uint32_t position, std::uint32_t length) {
  if (clamps && position >= 32) return 0;
  const std::uint32_t from = position & 31, count = length & 31, end = from + count;
  const std::uint32_t above = end >= 32 || (clamps && length >= 32) ? 0 : ~0u << end;
  return (~0u << from) & ~above;
}
template <class T, bool clamps>
constexpr T extend(T a, std::uint32_t width) {
  if (clamps && width >= 32) return a;
  const std::uint32_t count = width & 31, above = ~0u << count;
  const auto bits = static_cast<std::uint32_t>(a);
  const bool sign = std::is_signed_v<T> && count != 0 && ((bits >> (count - 1)) & 1) != 0;
  return static_cast<T>((bits & ~above) | (sign ? above : 0));
}

// fns: from `base` on, the offset-th set bit, upward or downward; 0 asks for the base itself.
constexpr std::uint32_t nth_set(std::uint32_t bits, std::uint32_t base, std::int32_t offset) {
  if (base > 31) return kNotFound;
  if (offset == 0) return ((bits >> base) & 1) != 0 ? base : kNotFound;
  const int step = offset > 0 ? 1 : -1;
  std::int64_t left = offset > 0 ? std::int64_t{offset} : -std::int64_t{offset};
  for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step) {
    if (((bits >> at) & 1) != 0 && --left == 0) return static_cast<std::uint32_t>(at);
  }
  return kNotFound;
}

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

constexpr std::array<TypedHandler, 2> kOnes = {{
    {Type::b32, lanewise<ones<U32>, U32, U32>},
    {Type::b64, lanewise<ones<U64>, U32, U64>},
}};
constexpr std::array<TypedHandler, 2> kLeadingZeros = {{
    {Type::b32, lanewise<leading_zeros<U32>, U32, U32>},
    {Type::b64, lanewise<leading_zeros<U64>, U32, U64>},
}};
constexpr std::array<TypedHandler, 2> kReversed = {{
    {Type::b32, lanewise<reversed<U32>, U32, U32>},
    {Type::b64, lanewise<reversed<U64>, U64, U64>},
}};
template <bool as_shift>
constexpr std::array<TypedHandler, 4> kHighest = {{
    {Type::u32, lanewise<highest_bit<U32, as_shift>, U32, U32>},
    {Type::s32, lanewise<highest_bit<S32, as_shift>, U32, S32>},
    {Type::u64, lanewise<highest_bit<U64, as_shift>, U32, U64>},
    {Type::s64, lanewise<highest_bit<S64, as_shift>, U32, S64>},
}};
constexpr std::array<TypedHandler, 4> kExtract = {{
    {Type::u32, lanewise<extract<U32>, U32, U32, U32, U32>},
    {Type::s32, lanewise<extract<S32>, S32, S32, U32, U32>},
    {Type::u64, lanewise<extract<U64>, U64, U64, U32, U32>},
    {Type::s64, lanewise<extract<S64>, S64, S64, U32, U32>},
}};
template <bool clamps>
constexpr std::array<TypedHandler, 2> kExtend = {{
    {Type::u32, lanewise<extend<U32, clamps>, U32, U32, U32>},
    {Type::s32, lanewise<extend<S32, clamps>, S32, S32, U32>},
}};

void decode_insert(Decoder& decoder, const Instruction& instruction, Op& op, Type type) {
  if (type != Type::b32 && type != Type::b64) decoder.unknown();
  op.run = type == Type::b32 ? insert_bits<U32> : insert_bits<U64>;
  decoder.expect_operands(instruction, 5, 5);
  op.d = decoder.destination(instruction.operands[0], type);
  op.a = decoder.source(instruction.operands[1], type);
  op.b = decoder.source(instruction.operands[2], type);
  op.c = decoder.source(instruction.operands[3], Type::u32);
  std::tie(op.list, op.list_size) = decoder.sources(instruction.operands[4], Type::u32);
}

}  // namespace

void decode_bits(Decoder& decoder, const Instruction& instruction, Op& op) {
  const std::string_view opcode = instruction.opcode;
  Modifiers modifiers(decoder, instruction);
  const bool shift = opcode == "bfind" && modifiers.take("shiftamt");
  const bool has_mode = opcode == "bmsk" || opcode == "szext";
  const int mode = has_mode ? modifiers.take_one_of({"wrap", "clamp"}) : 0;
  if (mode < 0) decoder.unknown();
  const Type type = modifiers.take_type();
  modifiers.finish();
  if (opcode == "bfi") return decode_insert(decoder, instruction, op, type);
  if (opcode == "bfe") {
    set_handler(decoder, op, find_handler(kExtract, type));
    return set_operands(decoder, instruction, op, type, {type, Type::u32, Type::u32});
  }
  if (opcode == "brev") {
    set_handler(decoder, op, find_handler(kReversed, type));
    return set_operands(decoder, instruction, op, type, {type});
  }
  if (has_mode) {
    const Handler extend_to = find_handler(mode == 1 ? kExtend<true> : kExtend<false>, type);
    const Handler mask = type != Type::b32 ? nullptr
                         : mode == 1       ? lanewise<bit_mask<true>, U32, U32, U32>
                                           : lanewise<bit_mask<false>, U32, U32, U32>;
    set_handler(decoder, op, opcode == "bmsk" ? mask : extend_to);
    return set_operands(decoder, instruction, op, type, {type, Type::u32});
  }
  if (opcode == "fns") {
    set_handler(decoder, op, type == Type::b32 ? lanewise<nth_set, U32, U32, U32, S32> : nullptr);
    return set_operands(decoder, instruction, op, Type::b32, {Type::b32, Type::b32, Type::s32});
  }
  set_handler(decoder, op,
              opcode == "popc"  ? find_handler(kOnes, type)
              : opcode == "clz" ? find_handler(kLeadingZeros, type)
              : shift           ? find_handler(kHighest<true>, type)
                                : find_handler(kHighest<false>, type));
  set_operands(decoder, instruction, op, Type::u32, {type});
}

}  // namespace kiln::runtime::emulator
