#include "runtime/emulator/matrix_product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kiln::runtime::emulator {
namespace {

// Eight columns at a time; the compiler splits these where the machine's vectors are shorter.
using Float8 = float __attribute__((vector_size(32), may_alias));
using Int8 = std::int32_t __attribute__((vector_size(32), may_alias));
using Double8 = double __attribute__((vector_size(64), may_alias));
using Long8 = std::int64_t __attribute__((vector_size(64), may_alias));

constexpr std::int32_t kExponentMask = 0x7f800000;

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}
// The fast path's sums are exact while the largest exponent is in this range.
constexpr float kSmallest = power_of_two(-100), kLargest = power_of_two(120);

// 2^exponent of a float, 0 of zero and subnormals, infinity of infinity and NaN.
float exponent_part(float value) {
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(value) & kExponentMask);
}

// One sum of the model, whatever its operands: any exponents, infinities, NaN.
float careful_sum(const float* a, const float* b, int k, int columns, float c, int fraction,
                  int result_bits) {
  bool nan = std::isnan(c);
  bool infinite[2] = {false, false};
  if (std::isinf(c)) infinite[std::signbit(c)] = true;
  int top = c != 0 && std::isfinite(c) ? std::ilogb(c) : std::numeric_limits<int>::min();
  for (int i = 0; i < k; ++i) {
    const double x = a[i], y = b[i * columns];
    const double product = x * y;  // exact: at most 22 significant bits
    if (std::isnan(product)) nan = true;
    if (std::isinf(product)) infinite[std::signbit(product)] = true;
    if (product != 0 && std::isfinite(product)) top = std::max(top, std::ilogb(x) + std::ilogb(y));
  }
  if (nan || (infinite[0] && infinite[1])) return std::bit_cast<float>(0x7fffffffu);
  if (infinite[0] || infinite[1]) {
    return infinite[0] ? std::numeric_limits<float>::infinity()
                       : -std::numeric_limits<float>::infinity();
  }
  if (top == std::numeric_limits<int>::min()) return 0;
  double sum = std::trunc(std::ldexp(static_cast<double>(c), fraction - top));
  for (int i = 0; i < k; ++i) {
    const double product = static_cast<double>(a[i]) * b[i * columns];
    sum += std::trunc(std::ldexp(product, fraction - top));
  }
  if (sum == 0) return 0;
  const int exponent = std::max(std::ilogb(sum) + top - fraction, -126);
  const int last = exponent - result_bits - (top - fraction);  // of the bits that stay
  const double kept = std::ldexp(std::trunc(std::ldexp(sum, -last)), last + top - fraction);
  return static_cast<float>(kept);  // exact, or beyond the largest f32: infinity
}

// Inlined into each of its callers, so that every instruction set gets its own code.
template <int kFraction, int kResultBits>
[[gnu::always_inline]] inline void multiply_rows(const float* a, const float* b, float* c, int k,
                                                 int columns, bool special) {
  constexpr std::int64_t keep = -(std::int64_t{1} << (52 - kResultBits));
  for (int column = 0; column < columns; column += 8) {
    for (int m = 0; m < kMatrixRows; ++m) {
      const float* row = a + m * k;
      const float* rhs = b + column;
      float* out = c + m * columns + column;
      const Float8 accumulator = *reinterpret_cast<const Float8*>(out);
      Float8 top = reinterpret_cast<Float8>(reinterpret_cast<Int8>(accumulator) & kExponentMask);
      for (int i = 0; i < k; ++i) {
        const Float8 y = *reinterpret_cast<const Float8*>(rhs + i * columns);
        const Float8 exponent =
            reinterpret_cast<Float8>(reinterpret_cast<Int8>(y) & kExponentMask) *
            exponent_part(row[i]);
        top = exponent > top ? exponent : top;
      }
      const Int8 zero = (top == 0.0f) & (accumulator == 0.0f);
      const Int8 outside = ((top < kSmallest) & ~zero) | (top >= kLargest);
      std::int32_t any = special;
      for (int i = 0; i < 8; ++i) any |= outside[i];
      if (any != 0) {
        for (int i = 0; i < 8; ++i) {
          out[i] = careful_sum(row, rhs + i, k, columns, out[i], kFraction, kResultBits);
        }
        continue;
      }
      const Float8 least = Float8{} + kSmallest;
      top = top > least ? top : least;  // of a sum of zeros
      const Int8 exponent = reinterpret_cast<Int8>(top);
      const Float8 scale = reinterpret_cast<Float8>(((254 + kFraction) << 23) - exponent);
      const Float8 unit = reinterpret_cast<Float8>(exponent - (kFraction << 23));
      // Two sums: 16 products below 2^27 each fill 31 bits.
      Int8 low = __builtin_convertvector(accumulator * scale, Int8), high = {};
      int i = 0;
      for (; i + 1 < k; i += 2) {
        const Float8 y0 = *reinterpret_cast<const Float8*>(rhs + i * columns);
        const Float8 y1 = *reinterpret_cast<const Float8*>(rhs + (i + 1) * columns);
        low += __builtin_convertvector(y0 * row[i] * scale, Int8);
        high += __builtin_convertvector(y1 * row[i + 1] * scale, Int8);
      }
      Double8 sum = __builtin_convertvector(low, Double8) + __builtin_convertvector(high, Double8);
      sum *= __builtin_convertvector(unit, Double8);
      sum = reinterpret_cast<Double8>(reinterpret_cast<Long8>(sum) & keep);
      *reinterpret_cast<Float8*>(out) = __builtin_convertvector(sum, Float8);
    }
  }
}

// Infinities, NaN and subnormals (of bf16 and tf32): not for the fast path.
bool has_special(const float* values, int count) {
  std::int32_t found = 0;
  for (int i = 0; i < count; ++i) {
    const std::int32_t bits = std::bit_cast<std::int32_t>(values[i]);
    const std::int32_t exponent = bits & kExponentMask;
    found |= (exponent == kExponentMask) | ((exponent == 0) & ((bits & 0x7fffff) != 0));
  }
  return found != 0;
}

using Multiply = void (*)(const float*, const float*, float*, int, int, bool);

void multiply_plain(const float* a, const float* b, float* c, int k, int columns, bool special) {
  multiply_rows<kSumFractionBits, kSumResultBits>(a, b, c, k, columns, special);
}
void multiply_fp8_plain(const float* a, const float* b, float* c, int k, int columns,
                        bool special) {
  multiply_rows<kFp8SumFractionBits, kFp8SumResultBits>(a, b, c, k, columns, special);
}
#if defined(__x86_64__)
// Not target_clones: its resolvers run before sanitizers have set themselves up.
[[gnu::target("avx2")]] void multiply_avx2(const float* a, const float* b, float* c, int k,
                                           int columns, bool special) {
  multiply_rows<kSumFractionBits, kSumResultBits>(a, b, c, k, columns, special);
}
[[gnu::target("avx2")]] void multiply_fp8_avx2(const float* a, const float* b, float* c, int k,
                                               int columns, bool special) {
  multiply_rows<kFp8SumFractionBits, kFp8SumResultBits>(a, b, c, k, columns, special);
}
#endif

struct Kernels {
  Multiply real = multiply_plain;
  Multiply fp8 = multiply_fp8_plain;
};
const Kernels& kernels() {
  static const Kernels chosen = [] {
    Kernels kernels;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) kernels = {multiply_avx2, multiply_fp8_avx2};
#endif
    return kernels;
  }();
  return chosen;
}

}  // namespace

void multiply_add(const float* a, const float* b, float* c, int k, int columns) {
  const bool special = has_special(a, kMatrixRows * k) || has_special(b, k * columns);
  kernels().real(a, b, c, k, columns, special);
}

void multiply_add_fp8(const float* a, const float* b, float* c, int k, int columns) {
  const bool special = has_special(a, kMatrixRows * k) || has_special(b, k * columns);
  kernels().fp8(a, b, c, k, columns, special);
}

void multiply_add(const std::int32_t* a, const std::int32_t* b, std::int32_t* c, int k, int columns,
                  bool saturate) {
  for (int column = 0; column < columns; column += 8) {
    for (int m = 0; m < kMatrixRows; ++m) {
      std::int32_t* out = c + m * columns + column;
      Int8 sum = {};
      for (int i = 0; i < k; ++i) {
        sum += *reinterpret_cast<const Int8*>(b + i * columns + column) * a[m * k + i];
      }
      for (int i = 0; i < 8; ++i) {
        std::int64_t exact = std::int64_t{out[i]} + sum[i];
        if (saturate) exact = std::clamp<std::int64_t>(exact, INT32_MIN, INT32_MAX);
        out[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(exact & 0xffffffff));
      }
    }
  }
}

}  // namespace kiln::runtime::emulator
