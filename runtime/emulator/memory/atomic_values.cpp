#include "runtime/emulator/memory/atomic_values.h"

#include <bit>

#include "runtime/emulator/arithmetic/numbers.h"

namespace kiln::runtime::emulator {
namespace {

using Word = std::uint64_t;

template <class T>
T as(Word bits) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<T>(bits);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<T>(static_cast<std::uint32_t>(bits));
  else
    return static_cast<T>(bits);
}
template <class T>
Word bits_of(T value) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<Word>(value);
  else
    return std::bit_cast<std::uint32_t>(value);
}

Word bit_and(Word old, Word b, Word) { return old & b; }
Word bit_or(Word old, Word b, Word) { return old | b; }
Word bit_xor(Word old, Word b, Word) { return old ^ b; }
Word exchange(Word, Word b, Word) { return b; }
Word compare_and_swap(Word old, Word b, Word c) { return old == b ? c : old; }
// Modulo the element's size: only its bytes are stored.
Word add(Word old, Word b, Word) { return old + b; }
Word increment(Word old, Word b, Word) { return old >= b ? 0 : old + 1; }
Word decrement(Word old, Word b, Word) { return old == 0 || old > b ? b : old - 1; }

template <class T>
Word smaller(Word old, Word b, Word) {
  return as<T>(b) < as<T>(old) ? b : old;
}
template <class T>
Word larger(Word old, Word b, Word) {
  return as<T>(b) > as<T>(old) ? b : old;
}

Word add_f32(Word old, Word b, Word) { return bits_of(canonical(as<float>(old) + as<float>(b))); }
Word add_f32_flushing(Word old, Word b, Word) {
  return bits_of(canonical(flush(flush(as<float>(old)) + flush(as<float>(b)))));
}
Word add_f64(Word old, Word b, Word) { return bits_of(as<double>(old) + as<double>(b)); }

// The sum of two f16 or bf16 in f32 loses nothing that a second rounding could need: f32 has more
// than twice their bits and two more.
struct Half {
  static float widen(std::uint16_t bits) { return f16_to_f32(bits); }
  static std::uint16_t narrow(float value) { return f32_to_f16(value); }
};
struct Brain {
  static float widen(std::uint16_t bits) { return bf16_to_f32(bits); }
  static std::uint16_t narrow(float value) { return f32_to_bf16(value); }
};
struct Sum {
  static float of(float x, float y) { return x + y; }
};
// A NaN loses against a number, and -0 is less than +0.
struct Least {
  static float of(float x, float y) {
    if (x != x) return y;
    if (x == y) return std::signbit(x) ? x : y;
    return y < x ? y : x;
  }
};
struct Greatest {
  static float of(float x, float y) {
    if (x != x) return y;
    if (x == y) return std::signbit(x) ? y : x;
    return y > x ? y : x;
  }
};

template <class Format, class F>
Word of_half(Word old, Word b, Word) {
  return Format::narrow(F::of(Format::widen(static_cast<std::uint16_t>(old)),
                              Format::widen(static_cast<std::uint16_t>(b))));
}
template <class Format, class F>
Word of_pair(Word old, Word b, Word) {
  return of_half<Format, F>(old, b, 0) | of_half<Format, F>(old >> 16, b >> 16, 0) << 16;
}

using enum Type;
constexpr AtomicOperation kOperations[] = {
    {"and", b32, bit_and},
    {"and", b64, bit_and},
    {"or", b32, bit_or},
    {"or", b64, bit_or},
    {"xor", b32, bit_xor},
    {"xor", b64, bit_xor},
    {"exch", b32, exchange},
    {"exch", b64, exchange},
    {"cas", b16, compare_and_swap},
    {"cas", b32, compare_and_swap},
    {"cas", b64, compare_and_swap},
    {"add", u32, add},
    {"add", s32, add},
    {"add", u64, add},
    {"add", s64, add},
    {"add", f32, add_f32, add_f32_flushing},
    {"add", f64, add_f64},
    {"inc", u32, increment},
    {"dec", u32, decrement},
    {"min", u32, smaller<std::uint32_t>},
    {"min", s32, smaller<std::int32_t>},
    {"min", u64, smaller<std::uint64_t>},
    {"min", s64, smaller<std::int64_t>},
    {"max", u32, larger<std::uint32_t>},
    {"max", s32, larger<std::int32_t>},
    {"max", u64, larger<std::uint64_t>},
    {"max", s64, larger<std::int64_t>},
    {"add", f16, of_half<Half, Sum>},
    {"add", bf16, of_half<Brain, Sum>},
    {"add", f16x2, of_pair<Half, Sum>},
    {"add", bf16x2, of_pair<Brain, Sum>},
    // Of vectors only.
    {"min", f16, of_half<Half, Least>},
    {"min", bf16, of_half<Brain, Least>},
    {"min", f16x2, of_pair<Half, Least>},
    {"min", bf16x2, of_pair<Brain, Least>},
    {"max", f16, of_half<Half, Greatest>},
    {"max", bf16, of_half<Brain, Greatest>},
    {"max", f16x2, of_pair<Half, Greatest>},
    {"max", bf16x2, of_pair<Brain, Greatest>},
};

}  // namespace

const AtomicOperation* find_atomic(std::string_view name, Type type) {
  for (const AtomicOperation& operation : kOperations) {
    if (operation.name == name && operation.type == type) return &operation;
  }
  return nullptr;
}

}  // namespace kiln::runtime::emulator
