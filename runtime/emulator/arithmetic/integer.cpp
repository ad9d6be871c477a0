// Integer sums, quotients and comparisons. What overflows wraps: sums are computed unsigned.
#include <algorithm>
#include <array>
#include <limits>

#include "runtime/emulator/arithmetic/arithmetic.h"
#include "runtime/emulator/arithmetic/lanes.h"

namespace kiln::runtime::emulator {
namespace {

template <class T>
constexpr auto bits_of(T x) {
  return static_cast<std::make_unsigned_t<T>>(x);
}

struct Add {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(bits_of(a) + bits_of(b));
  }
};
struct Subtract {
  template <class T>
  static constexpr T of(T a, T b) {
    return static_cast<T>(bits_of(a) - bits_of(b));
  }
};
struct Negate {
  template <class T>
  static constexpr T of(T a) {
    return Subtract::of(T{0}, a);
  }
};
struct Absolute {  // the lowest value stays itself
  template <class T>
  static constexpr T of(T a) {
    return a < 0 ? Negate::of(a) : a;
  }
};
// PTX leaves division by zero to the machine: GPUs give all ones, for the remainder too.
struct Divide {
  template <class T>
  static constexpr T of(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return Negate::of(a);
    }
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  static constexpr T of(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};
struct Lesser {
  template <class T>
  static constexpr T of(T a, T b) {
    return a < b ? a : b;
  }
};
struct Greater {
  template <class T>
  static constexpr T of(T a, T b) {
    return a < b ? b : a;
  }
};
struct SumOfDifference {
  template <class T>
  static constexpr T of(T a, T b, T c) {
    return Add::of(c, a < b ? Subtract::of(b, a) : Subtract::of(a, b));
  }
};
template <class F>
struct Relu {
  template <class T>
  static constexpr T of(T a, T b) {
    return Greater::of(F::of(a, b), T{0});
  }
};
template <class F>
struct Saturating {  // of 32 bits
  static constexpr std::int32_t of(std::int32_t a, std::int32_t b) {
    using Limits = std::numeric_limits<std::int32_t>;
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(
        F::of(std::int64_t{a}, std::int64_t{b}), Limits::min(), Limits::max()));
  }
};

template <class F, class T, int arity>
constexpr Handler handler_of() {
  if constexpr (arity == 1) return lanewise<F::template of<T>, T, T>;
  if constexpr (arity == 2) return lanewise<F::template of<T>, T, T, T>;
  if constexpr (arity == 3) return lanewise<F::template of<T>, T, T, T, T>;
}
template <class F, int arity = 2>
constexpr std::array<TypedHandler, 3> kSigned = {{
    {Type::s16, handler_of<F, std::int16_t, arity>()},
    {Type::s32, handler_of<F, std::int32_t, arity>()},
    {Type::s64, handler_of<F, std::int64_t, arity>()},
}};
template <class F, int arity = 2>
constexpr std::array<TypedHandler, 6> kAll = {{
    {Type::u16, handler_of<F, std::uint16_t, arity>()},
    {Type::u32, handler_of<F, std::uint32_t, arity>()},
    {Type::u64, handler_of<F, std::uint64_t, arity>()},
    kSigned<F, arity>[0],
    kSigned<F, arity>[1],
    kSigned<F, arity>[2],
}};

// F on both halves of a word.
template <class F, class T>
constexpr std::uint32_t in_pair(std::uint32_t a, std::uint32_t b) {
  const T low = F::of(static_cast<T>(a), static_cast<T>(b));
  const T high = F::of(static_cast<T>(a >> 16), static_cast<T>(b >> 16));
  return static_cast<std::uint16_t>(low) |
         static_cast<std::uint32_t>(static_cast<std::uint16_t>(high)) << 16;
}
template <class F, class T>
constexpr Handler kPair = lanewise<in_pair<F, T>, std::uint32_t, std::uint32_t, std::uint32_t>;
template <class F>
constexpr std::array<TypedHandler, 2> kPairs = {{
    {Type::u16x2, kPair<F, std::uint16_t>},
    {Type::s16x2, kPair<F, std::int16_t>},
}};

// add.cc, addc, addc.cc and the same of sub, where the flag is a borrow.
template <class T, bool subtract, bool reads, bool writes>
Flow with_carry(Warp& warp, const Op& op, Mask mask) {
  const T* a = row<T>(warp, op.a);
  const T* b = row<T>(warp, op.b);
  Mask flags = 0;
  for_each_lane(mask, [&](int l) {
    const T in = reads ? (warp.carry >> l) & 1u : 0;
    const T first = subtract ? a[l] - b[l] : a[l] + b[l];
    const bool out1 = subtract ? a[l] < b[l] : first < a[l];
    const T second = subtract ? first - in : first + in;
    const bool out2 = subtract ? first < in : second < first;
    flags |= static_cast<Mask>(out1 || out2) << l;
    if (op.d != kNoRef) row_out<T>(warp, op.d)[l] = second;
  });
  if (writes) warp.carry = (warp.carry & ~mask) | flags;
  return Flow::next;
}
template <class T, bool subtract>
Handler carry_handler(bool reads, bool writes) {
  if (reads)
    return writes ? with_carry<T, subtract, true, true> : with_carry<T, subtract, true, false>;
  return with_carry<T, subtract, false, true>;
}
Handler carry_handler(Type type, bool subtract, bool reads, bool writes) {
  switch (type) {
    case Type::u32:
    case Type::s32:
      return subtract ? carry_handler<std::uint32_t, true>(reads, writes)
                      : carry_handler<std::uint32_t, false>(reads, writes);
    case Type::u64:
    case Type::s64:
      return subtract ? carry_handler<std::uint64_t, true>(reads, writes)
                      : carry_handler<std::uint64_t, false>(reads, writes);
    default:
      return nullptr;
  }
}

template <class F>
Handler sum_handler(Type type, bool saturates) {
  if (saturates) {
    return type == Type::s32 ? lanewise<Saturating<F>::of, std::int32_t, std::int32_t, std::int32_t>
                             : nullptr;
  }
  const Handler pair = std::is_same_v<F, Add> ? find_handler(kPairs<F>, type) : nullptr;
  return pair != nullptr ? pair : find_handler(kAll<F>, type);
}

template <class F>
Handler extreme_handler(Type type, bool relu) {
  if (!relu) {
    const Handler pair = find_handler(kPairs<F>, type);
    return pair != nullptr ? pair : find_handler(kAll<F>, type);
  }
  if (type == Type::s16x2) return kPair<Relu<F>, std::int16_t>;
  return type == Type::s32 ? handler_of<Relu<F>, std::int32_t, 2>() : nullptr;
}

Handler choose(std::string_view opcode, Type type, Modifiers& modifiers) {
  const bool is_add = opcode.substr(0, 3) == "add", is_sub = opcode.substr(0, 3) == "sub";
  if (is_add || is_sub) {
    const bool reads = opcode.size() == 4, writes = modifiers.take("cc");
    if (reads || writes) return carry_handler(type, is_sub, reads, writes);
    const bool saturates = modifiers.take("sat");
    return is_add ? sum_handler<Add>(type, saturates) : sum_handler<Subtract>(type, saturates);
  }
  if (opcode == "min") return extreme_handler<Lesser>(type, modifiers.take("relu"));
  if (opcode == "max") return extreme_handler<Greater>(type, modifiers.take("relu"));
  if (opcode == "div") return find_handler(kAll<Divide>, type);
  if (opcode == "rem") return find_handler(kAll<Remainder>, type);
  if (opcode == "sad") return find_handler(kAll<SumOfDifference, 3>, type);
  if (opcode == "abs") return find_handler(kSigned<Absolute, 1>, type);
  if (opcode == "neg") return find_handler(kSigned<Negate, 1>, type);
  return nullptr;
}

}  // namespace

void decode_integer(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const Type type = modifiers.take_type();
  set_handler(decoder, op, choose(instruction.opcode, type, modifiers));
  modifiers.finish();
  if (instruction.opcode == "abs" || instruction.opcode == "neg") {
    set_operands(decoder, instruction, op, type, {type});
  } else if (instruction.opcode == "sad") {
    set_operands(decoder, instruction, op, type, {type, type, type});
  } else {
    set_operands(decoder, instruction, op, type, {type, type});
  }
}

}  // namespace kiln::runtime::emulator
