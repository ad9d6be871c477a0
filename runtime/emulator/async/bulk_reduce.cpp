// The arithmetic of cp.reduce.async.bulk: element by element, atomically in global memory.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/emulator/arithmetic/numbers.h"
#include "runtime/emulator/async/bulk.h"

namespace kiln::runtime::emulator {
namespace {

// Storage of a 16-bit float, with the arithmetic of its format. Two f32 digits more than twice the
// format's make the second rounding harmless.
struct Half {
  std::uint16_t bits;
  float value() const { return f16_to_f32(bits); }
  static Half from(float x) { return {f32_to_f16(x)}; }
};
struct Bfloat {
  std::uint16_t bits;
  float value() const { return bf16_to_f32(bits); }
  static Bfloat from(float x) { return {f32_to_bf16(x)}; }
};

template <class T>
concept Narrow = requires(T x) { x.value(); };

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (Narrow<T>) {
      return T::from(a.value() + b.value());
    } else {
      return a + b;  // integers are unsigned here: modulo
    }
  }
};
// Of floats: a NaN gives way to a number, and -0 is less than +0.
template <bool kMax>
struct Extreme {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (Narrow<T>) {
      const float x = a.value(), y = b.value();
      if (x != x) return y != y ? T::from(canonical(x)) : b;
      if (y != y) return a;
      const bool a_first = x == y ? (a.bits & 0x8000u) != 0 : x < y;
      return a_first != kMax ? a : b;
    } else {
      return kMax ? std::max(a, b) : std::min(a, b);
    }
  }
};
struct Inc {
  template <class T>
  T operator()(T a, T b) const {
    return a >= b ? T{0} : a + 1;
  }
};
struct Dec {
  template <class T>
  T operator()(T a, T b) const {
    return a == 0 || a > b ? b : a - 1;
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};

template <class T>
using Word = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

template <class F, class T>
void reduce(std::byte* to, const std::byte* from, std::size_t bytes, bool atomic) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
    T value;
    std::memcpy(&value, from + at, sizeof(T));
    if (!atomic) {
      T old;
      std::memcpy(&old, to + at, sizeof(T));
      const T result = F()(old, value);
      std::memcpy(to + at, &result, sizeof(T));
      continue;
    }
    // Bulk addresses are multiples of 16, so that every element is aligned.
    std::atomic_ref<Word<T>> word(*reinterpret_cast<Word<T>*>(to + at));
    Word<T> old = word.load(std::memory_order_relaxed);
    Word<T> result;
    do {
      result = std::bit_cast<Word<T>>(F()(std::bit_cast<T>(old), value));
    } while (!word.compare_exchange_weak(old, result));
  }
}

struct Row {
  BulkOperation operation;
  Type type;
  BulkReduce run;
};

// PTX ISA, "cp.reduce.async.bulk": the table of types and operations.
constexpr Row kRows[] = {
    {BulkOperation::add, Type::u32, reduce<Add, std::uint32_t>},
    {BulkOperation::add, Type::s32, reduce<Add, std::uint32_t>},
    {BulkOperation::add, Type::u64, reduce<Add, std::uint64_t>},
    {BulkOperation::add, Type::s64, reduce<Add, std::uint64_t>},
    {BulkOperation::add, Type::f32, reduce<Add, float>},
    {BulkOperation::add, Type::f64, reduce<Add, double>},
    {BulkOperation::add, Type::f16, reduce<Add, Half>},
    {BulkOperation::add, Type::bf16, reduce<Add, Bfloat>},
    {BulkOperation::min, Type::u32, reduce<Extreme<false>, std::uint32_t>},
    {BulkOperation::min, Type::s32, reduce<Extreme<false>, std::int32_t>},
    {BulkOperation::min, Type::u64, reduce<Extreme<false>, std::uint64_t>},
    {BulkOperation::min, Type::s64, reduce<Extreme<false>, std::int64_t>},
    {BulkOperation::min, Type::f16, reduce<Extreme<false>, Half>},
    {BulkOperation::min, Type::bf16, reduce<Extreme<false>, Bfloat>},
    {BulkOperation::max, Type::u32, reduce<Extreme<true>, std::uint32_t>},
    {BulkOperation::max, Type::s32, reduce<Extreme<true>, std::int32_t>},
    {BulkOperation::max, Type::u64, reduce<Extreme<true>, std::uint64_t>},
    {BulkOperation::max, Type::s64, reduce<Extreme<true>, std::int64_t>},
    {BulkOperation::max, Type::f16, reduce<Extreme<true>, Half>},
    {BulkOperation::max, Type::bf16, reduce<Extreme<true>, Bfloat>},
    {BulkOperation::inc, Type::u32, reduce<Inc, std::uint32_t>},
    {BulkOperation::dec, Type::u32, reduce<Dec, std::uint32_t>},
    {BulkOperation::bit_and, Type::b32, reduce<And, std::uint32_t>},
    {BulkOperation::bit_and, Type::b64, reduce<And, std::uint64_t>},
    {BulkOperation::bit_or, Type::b32, reduce<Or, std::uint32_t>},
    {BulkOperation::bit_or, Type::b64, reduce<Or, std::uint64_t>},
    {BulkOperation::bit_xor, Type::b32, reduce<Xor, std::uint32_t>},
    {BulkOperation::bit_xor, Type::b64, reduce<Xor, std::uint64_t>},
};

}  // namespace

std::optional<BulkOperation> take_bulk_operation(Modifiers& modifiers) {
  const int index = modifiers.take_one_of({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
  if (index < 0) return std::nullopt;
  return static_cast<BulkOperation>(index);
}

BulkReduce bulk_reduce(BulkOperation operation, Type type) {
  for (const Row& row : kRows) {
    if (row.operation == operation && row.type == type) return row.run;
  }
  return nullptr;
}

}  // namespace kiln::runtime::emulator
