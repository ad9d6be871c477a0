#include "runtime/emulator/matrix_product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace kiln::runtime::emulator {
namespace {

// As many columns at a time as a vector of the machine holds: wider ones are compiled badly.
template <int kWidth>
struct Vectors {
  using Real [[gnu::vector_size(4 * kWidth), gnu::may_alias]] = float;
  using Integer [[gnu::vector_size(4 * kWidth), gnu::may_alias]] = std::int32_t;
  using Unsigned [[gnu::vector_size(4 * kWidth), gnu::may_alias]] = std::uint32_t;
  using Double [[gnu::vector_size(8 * kWidth), gnu::may_alias]] = double;
  using Long [[gnu::vector_size(8 * kWidth), gnu::may_alias]] = std::int64_t;
};

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

// Infinities, NaN and subnormals (of bf16 and tf32) are not for the fast path.
template <int kWidth>
[[gnu::always_inline]] inline bool has_special(const float* values, int count) {
  using Integer = typename Vectors<kWidth>::Integer;
  Integer found = {};
  for (int i = 0; i < count; i += kWidth) {
    const Integer bits = *reinterpret_cast<const Integer*>(values + i);
    const Integer exponent = bits & kExponentMask;
    found |= (exponent == kExponentMask) | ((exponent == 0) & ((bits & 0x7fffff) != 0));
  }
  std::int32_t any = 0;
  for (int i = 0; i < kWidth; ++i) any |= found[i];
  return any != 0;
}

// One row of one vector of columns; false where the careful sum must do it. Inlined into each of
// its callers, so that every instruction set gets its own code.
template <int kWidth, int kFraction, int kResultBits>
[[gnu::always_inline]] inline bool multiply_row(const float* row, const float* rhs, float* out,
                                                int k, int columns) {
  using Real = typename Vectors<kWidth>::Real;
  using Integer = typename Vectors<kWidth>::Integer;
  using Unsigned = typename Vectors<kWidth>::Unsigned;
  using Double = typename Vectors<kWidth>::Double;
  using Long = typename Vectors<kWidth>::Long;
  const Real accumulator = *reinterpret_cast<const Real*>(out);
  Real top = reinterpret_cast<Real>(reinterpret_cast<Integer>(accumulator) & kExponentMask);
  for (int i = 0; i < k; ++i) {
    const Integer y = *reinterpret_cast<const Integer*>(rhs + i * columns);
    const Real exponent = reinterpret_cast<Real>(y & kExponentMask) * exponent_part(row[i]);
    top = exponent > top ? exponent : top;
  }
  const Integer zero = (top == 0.0f) & (accumulator == 0.0f);
  const Integer outside = ((top < kSmallest) & ~zero) | (top >= kLargest);
  std::int32_t any = 0;
  for (int i = 0; i < kWidth; ++i) any |= outside[i];
  if (any != 0) return false;
  const Real least = Real{} + kSmallest;
  top = top > least ? top : least;  // of a sum of zeros
  const Unsigned exponent = reinterpret_cast<Unsigned>(top);
  const Real scale = reinterpret_cast<Real>(((254u + kFraction) << 23) - exponent);
  const Real unit = reinterpret_cast<Real>(exponent - (unsigned{kFraction} << 23));
  // Two sums: 16 products below 2^27 each fill 31 bits.
  Integer low = __builtin_convertvector(accumulator * scale, Integer), high = {};
  for (int i = 0; i < k; i += 2) {
    const Real y0 = *reinterpret_cast<const Real*>(rhs + i * columns);
    const Real y1 = *reinterpret_cast<const Real*>(rhs + (i + 1) * columns);
    low += __builtin_convertvector(y0 * row[i] * scale, Integer);
    high += __builtin_convertvector(y1 * row[i + 1] * scale, Integer);
  }
  constexpr std::int64_t keep = -(std::int64_t{1} << (52 - kResultBits));
  Double sum = __builtin_convertvector(low, Double) + __builtin_convertvector(high, Double);
  sum *= __builtin_convertvector(unit, Double);
  sum = reinterpret_cast<Double>(reinterpret_cast<Long>(sum) & keep);
  *reinterpret_cast<Real*>(out) = __builtin_convertvector(sum, Real);
  return true;
}

template <int kWidth, int kFraction, int kResultBits>
[[gnu::always_inline]] inline void multiply_rows(const float* a, const float* b, float* c, int k,
                                                 int columns) {
  const bool special =
      has_special<kWidth>(a, kMatrixRows * k) || has_special<kWidth>(b, k * columns);
  for (int column = 0; column < columns; column += kWidth) {
    for (int m = 0; m < kMatrixRows; ++m) {
      const float* row = a + m * k;
      const float* rhs = b + column;
      float* out = c + m * columns + column;
      if (!special && multiply_row<kWidth, kFraction, kResultBits>(row, rhs, out, k, columns)) {
        continue;
      }
      for (int i = 0; i < kWidth; ++i) {
        out[i] = careful_sum(row, rhs + i, k, columns, out[i], kFraction, kResultBits);
      }
    }
  }
}

using Multiply = void (*)(const float*, const float*, float*, int, int);

void multiply_plain(const float* a, const float* b, float* c, int k, int columns) {
  multiply_rows<4, kSumFractionBits, kSumResultBits>(a, b, c, k, columns);
}
void multiply_fp8_plain(const float* a, const float* b, float* c, int k, int columns) {
  multiply_rows<4, kFp8SumFractionBits, kFp8SumResultBits>(a, b, c, k, columns);
}
#if defined(__x86_64__)
// Not target_clones: its resolvers run before sanitizers have set themselves up.
[[gnu::target("avx2")]] void multiply_avx2(const float* a, const float* b, float* c, int k,
                                           int columns) {
  multiply_rows<8, kSumFractionBits, kSumResultBits>(a, b, c, k, columns);
}
[[gnu::target("avx2")]] void multiply_fp8_avx2(const float* a, const float* b, float* c, int k,
                                               int columns) {
  multiply_rows<8, kFp8SumFractionBits, kFp8SumResultBits>(a, b, c, k, columns);
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
  kernels().real(a, b, c, k, columns);
}

void multiply_add_fp8(const float* a, const float* b, float* c, int k, int columns) {
  kernels().fp8(a, b, c, k, columns);
}

void multiply_add(const std::int32_t* a, const std::int32_t* b, std::int32_t* c, int k, int columns,
                  bool saturate) {
  using Integer = Vectors<4>::Integer;
  for (int column = 0; column < columns; column += 4) {
    for (int m = 0; m < kMatrixRows; ++m) {
      std::int32_t* out = c + m * columns + column;
      Integer sum = {};
      for (int i = 0; i < k; ++i) {
        sum += *reinterpret_cast<const Integer*>(b + i * columns + column) * a[m * k + i];
      }
      for (int i = 0; i < 4; ++i) {
        std::int64_t exact = std::int64_t{out[i]} + sum[i];
        if (saturate) exact = std::clamp<std::int64_t>(exact, INT32_MIN, INT32_MAX);
        out[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(exact & 0xffffffff));
      }
    }
  }
}

}  // namespace kiln::runtime::emulator
