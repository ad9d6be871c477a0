#include "runtime/emulator/matrix/product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/emulator/matrix/elements.h"

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

constexpr int kMostK = 32;
// Of f16 accumulators, sums that round to zero give +0, of whatever sign.
constexpr float kNoF16 = power_of_two(-25);

// 2^exponent of a float, `least` of smaller ones, 0 of zero. Infinity of infinity and NaN.
float exponent_part(float value, float least) {
  const auto part = std::bit_cast<float>(std::bit_cast<std::int32_t>(value) & kExponentMask);
  return value == 0 ? 0 : std::max(part, least);
}
template <class Real, class Integer>
[[gnu::always_inline]] inline void exponent_parts(const Real& values, float least, Real& parts) {
  const Real part = reinterpret_cast<Real>(reinterpret_cast<Integer>(values) & kExponentMask);
  const Real bounded = part < least ? Real{} + least : part;
  parts = reinterpret_cast<Real>(reinterpret_cast<Integer>(bounded) & (values != 0.0f));
}

// What is left of a sum: it is cut to `bits` fractional bits, or rounded to odd there.
double rounded(double sum, int bits, bool odd) {
  const double kept = std::trunc(sum * std::ldexp(1.0, bits));
  const bool inexact = std::ldexp(kept, -bits) != sum;
  const bool even = std::fmod(kept, 2) == 0;
  return odd && inexact && even ? kept + std::copysign(1.0, sum) : kept;
}

struct Column {
  const float* values;
  const float* exponents;
  int step, exponent_step;
};

// The sum's terms are of a[i] and b.values[i * b.step].
template <int kFraction, int kResultBits, bool kOdd>
struct CarefulSum {
  const float* a;
  const float* a_exponents;
  Column b;
  int k;

  // Whatever the operands: any exponents, infinities, NaN.
  float onto(float c, float least_c) const {
    bool nan = std::isnan(c);
    bool infinite[2] = {false, false};
    if (std::isinf(c)) infinite[std::signbit(c)] = true;
    constexpr int kNone = std::numeric_limits<int>::min();
    int top = c != 0 && std::isfinite(c) ? std::ilogb(std::max(std::fabs(c), least_c)) : kNone;
    for (int i = 0; i < k; ++i) {
      const double value = product(i);
      if (std::isnan(value)) nan = true;
      if (std::isinf(value)) infinite[std::signbit(value)] = true;
      if (value != 0 && std::isfinite(value)) top = std::max(top, exponent(i));
    }
    if (nan || (infinite[0] && infinite[1])) return std::bit_cast<float>(0x7fffffffu);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (infinite[0] || infinite[1]) return infinite[0] ? kInfinity : -kInfinity;
    if (top == kNone) return 0;
    return finite(c, std::max(top, kLeastSumExponent));
  }

 private:
  double product(int i) const {  // exact: at most 22 significant bits
    return static_cast<double>(a[i]) * b.values[i * b.step];
  }
  int exponent(int i) const {
    return std::ilogb(a_exponents[i]) + std::ilogb(b.exponents[i * b.exponent_step]);
  }
  float finite(float c, int top) const {
    double sum = std::trunc(std::ldexp(static_cast<double>(c), kFraction - top));
    for (int i = 0; i < k; ++i) sum += std::trunc(std::ldexp(product(i), kFraction - top));
    if (sum == 0) return 0;
    const int unit = top - kFraction;
    const int last = std::max(std::ilogb(sum) + unit, -126) - kResultBits;  // of the bits that stay
    // Exact, or beyond the largest f32: infinity.
    const auto result = static_cast<float>(std::ldexp(rounded(sum, unit - last, kOdd), last));
    return kOdd && std::fabs(result) <= kNoF16 ? 0.0f : result;
  }
};

// Infinities and NaN are not for the fast path.
template <int kWidth>
[[gnu::always_inline]] inline bool has_special(const float* values, int count) {
  using Integer = typename Vectors<kWidth>::Integer;
  Integer found = {};
  for (int i = 0; i < count; i += kWidth) {
    const Integer bits = *reinterpret_cast<const Integer*>(values + i);
    found |= (bits & kExponentMask) == kExponentMask;
  }
  std::int32_t any = 0;
  for (int i = 0; i < kWidth; ++i) any |= found[i];
  return any != 0;
}

// One row of one vector of columns; false where the careful sum must do it. Inlined into each of
// its callers, so that every instruction set gets its own code.
template <int kWidth, int kFraction, int kResultBits, bool kOdd>
[[gnu::always_inline]] inline bool multiply_row(const float* row, const float* row_exponents,
                                                Column rhs, float* out, int k, float least_c) {
  using Real = typename Vectors<kWidth>::Real;
  using Integer = typename Vectors<kWidth>::Integer;
  using Unsigned = typename Vectors<kWidth>::Unsigned;
  using Double = typename Vectors<kWidth>::Double;
  using Long = typename Vectors<kWidth>::Long;
  const Real accumulator = *reinterpret_cast<const Real*>(out);
  Real top;
  exponent_parts<Real, Integer>(accumulator, least_c, top);
  for (int i = 0; i < k; ++i) {
    const Real exponent = *reinterpret_cast<const Real*>(rhs.exponents + i * kWidth);
    const Real sum = exponent * row_exponents[i];
    top = sum > top ? sum : top;
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
    const Real y0 = *reinterpret_cast<const Real*>(rhs.values + i * rhs.step);
    const Real y1 = *reinterpret_cast<const Real*>(rhs.values + (i + 1) * rhs.step);
    low += __builtin_convertvector(y0 * row[i] * scale, Integer);
    high += __builtin_convertvector(y1 * row[i + 1] * scale, Integer);
  }
  constexpr std::int64_t last = std::int64_t{1} << (52 - kResultBits);
  Double sum = __builtin_convertvector(low, Double) + __builtin_convertvector(high, Double);
  sum *= __builtin_convertvector(unit, Double);
  Long bits = reinterpret_cast<Long>(sum) & -last;
  if (kOdd) bits |= ((reinterpret_cast<Long>(sum) & (last - 1)) != 0) & last;
  Real result = __builtin_convertvector(reinterpret_cast<Double>(bits), Real);
  if (kOdd) {
    const Integer small = (result <= kNoF16) & (result >= -kNoF16);
    result = reinterpret_cast<Real>(reinterpret_cast<Integer>(result) & ~small);
  }
  *reinterpret_cast<Real*>(out) = result;
  return true;
}

template <int kWidth, int kFraction, int kResultBits, bool kOdd>
[[gnu::always_inline]] inline void multiply_rows(const ProductRule& rule, const float* a,
                                                 const float* b, float* c, int k, int columns) {
  using Real = typename Vectors<kWidth>::Real;
  using Integer = typename Vectors<kWidth>::Integer;
  const float least_c = kOdd ? 0x1p-14f : 0x1p-126f;
  const bool special =
      has_special<kWidth>(a, kMatrixRows * k) || has_special<kWidth>(b, k * columns);
  alignas(64) float a_exponents[kMatrixRows * kMostK];
  alignas(64) float b_exponents[kMostK * kWidth];
  for (int i = 0; i < kMatrixRows * k; ++i) a_exponents[i] = exponent_part(a[i], rule.least_a);
  for (int column = 0; column < columns; column += kWidth) {
    const Column rhs{b + column, b_exponents, columns, kWidth};
    for (int i = 0; i < k; ++i) {
      const Real values = *reinterpret_cast<const Real*>(rhs.values + i * columns);
      Real& parts = *reinterpret_cast<Real*>(b_exponents + i * kWidth);
      exponent_parts<Real, Integer>(values, rule.least_b, parts);
    }
    for (int m = 0; m < kMatrixRows; ++m) {
      const float* row = a + m * k;
      float* out = c + m * columns + column;
      if (!special && multiply_row<kWidth, kFraction, kResultBits, kOdd>(row, a_exponents + m * k,
                                                                         rhs, out, k, least_c)) {
        continue;
      }
      for (int i = 0; i < kWidth; ++i) {
        const Column one{rhs.values + i, rhs.exponents + i, columns, kWidth};
        using Careful = CarefulSum<kFraction, kResultBits, kOdd>;
        out[i] = Careful{row, a_exponents + m * k, one, k}.onto(out[i], least_c);
      }
    }
  }
}

using Multiply = void (*)(const ProductRule&, const float*, const float*, float*, int, int);

template <int kFraction, int kResultBits, bool kOdd>
void multiply_plain(const ProductRule& rule, const float* a, const float* b, float* c, int k,
                    int columns) {
  multiply_rows<4, kFraction, kResultBits, kOdd>(rule, a, b, c, k, columns);
}
#if defined(__x86_64__)
// Not target_clones: its resolvers run before sanitizers have set themselves up.
template <int kFraction, int kResultBits, bool kOdd>
[[gnu::target("avx2")]] void multiply_avx2(const ProductRule& rule, const float* a, const float* b,
                                           float* c, int k, int columns) {
  multiply_rows<8, kFraction, kResultBits, kOdd>(rule, a, b, c, k, columns);
}
#endif

template <int kFraction, int kResultBits, bool kOdd>
Multiply chosen() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return multiply_avx2<kFraction, kResultBits, kOdd>;
#endif
  return multiply_plain<kFraction, kResultBits, kOdd>;
}

}  // namespace

void multiply_add(const ProductRule& rule, const float* a, const float* b, float* c, int k,
                  int columns) {
  // By [fp8][half].
  static const Multiply kernels[2][2] = {{chosen<kSumFractionBits, kSumResultBits, false>(),
                                          chosen<kSumFractionBits, kSumResultBits, true>()},
                                         {chosen<kFp8SumFractionBits, kFp8SumResultBits, false>(),
                                          chosen<kFp8SumFractionBits, kSumResultBits, true>()}};
  kernels[rule.fp8][rule.half](rule, a, b, c, k, columns);
}

void multiply_add_fp8_as_f16(const float* a, const float* b, float* c, int k, bool half) {
  constexpr int kColumns = 8;
  const ProductRule rule{0x1p-14f, 0x1p-14f, half};
  alignas(64) float part_a[kMatrixRows * kMostK / 2];
  alignas(64) float part_b[kMostK / 2 * kColumns];
  alignas(64) float sum[kMatrixRows * kColumns] = {};
  const auto as_stored = [&](float value) {
    return half ? real_element<Element::f16>(f16_bits(value)) : value;
  };
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < k / 2; ++i) {
      const int from = i / 2 * 4 + pass * 2 + i % 2;
      for (int m = 0; m < kMatrixRows; ++m) part_a[m * (k / 2) + i] = a[m * k + from];
      std::copy_n(b + from * kColumns, kColumns, part_b + i * kColumns);
    }
    multiply_add(rule, part_a, part_b, sum, k / 2, kColumns);
    std::ranges::transform(sum, sum, as_stored);
  }
  for (int i = 0; i < kMatrixRows * kColumns; ++i) {
    const float total = sum[i] + c[i];
    c[i] = std::isnan(total) ? std::bit_cast<float>(0x7fffffffu) : total;
  }
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
