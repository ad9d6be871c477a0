// The tensor cores' sums against the model as matrix_product.h states it, computed another way; the
// number formats of operands; where descriptors point. The instructions: cases_matrix.py.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/matrix/descriptor.h"
#include "runtime/emulator/matrix/elements.h"
#include "runtime/emulator/matrix/product.h"
#include "tests/support/catch.h"

using namespace kiln::runtime::emulator;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A number as an integer times a power of two.
struct Scaled {
  std::int64_t integer = 0;
  int exponent = 0;
};
Scaled scaled(float value) {
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);
  return {static_cast<std::int64_t>(std::ldexp(fraction, 24)), exponent - 24};
}
int leading_exponent(float value, float least) {
  return value == 0 ? -100000 : std::ilogb(std::max(std::fabs(value), least));
}

// integer * 2^shift, cut toward zero.
std::int64_t shifted(std::int64_t integer, int shift) {
  if (shift >= 0) return integer * (std::int64_t{1} << shift);
  if (shift < -62) return 0;
  return integer / (std::int64_t{1} << -shift);
}

// The stated model in integers: finite operands only, results in f32's normal range.
float model(const ProductRule& rule, const std::vector<float>& a, const std::vector<float>& b,
            float c) {
  const int fraction = rule.fp8 ? 13 : 25, result = rule.fp8 ? 13 : 23;
  int top = leading_exponent(c, 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    top =
        std::max(top, leading_exponent(a[i], rule.least_a) + leading_exponent(b[i], rule.least_b));
  }
  if (top < -1000) return 0;
  // One unit of the sum is 2^(top - fraction).
  const Scaled start = scaled(c);
  std::int64_t sum = shifted(start.integer, start.exponent - (top - fraction));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Scaled x = scaled(a[i]), y = scaled(b[i]);
    sum += shifted(x.integer * y.integer, x.exponent + y.exponent - (top - fraction));
  }
  const auto magnitude = static_cast<std::uint64_t>(std::abs(sum));
  const int bits = static_cast<int>(std::bit_width(magnitude));
  const int drop = std::max(0, bits - (result + 1));
  const double kept = std::ldexp(static_cast<double>(magnitude >> drop), drop + top - fraction);
  return static_cast<float>(sum < 0 ? -kept : kept);
}

struct Block {
  int k, columns;
  std::vector<float> a, b, c;
};

// 32-byte aligned copies of a block's matrices, as the products need them.
class Aligned {
 public:
  explicit Aligned(const std::vector<float>& values) : storage_(values.size() + 8) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = storage_.data() + (32 - address % 32) % 32 / sizeof(float);
    std::copy(values.begin(), values.end(), begin_);
  }
  float* data() { return begin_; }

 private:
  std::vector<float> storage_;
  float* begin_;
};

// A number of `bits` significant bits, of an exponent within +-spread; now and then zero.
float draw(std::mt19937& random, int bits, int spread) {
  if (random() % 16 == 0) return 0;
  const auto integer = static_cast<float>(random() % (1u << bits) | 1u << (bits - 1));
  const int exponent = static_cast<int>(random() % static_cast<unsigned>(2 * spread + 1)) - spread;
  const float value = std::ldexp(integer, exponent - bits);
  return random() % 2 != 0 ? value : -value;
}

Block draw_block(unsigned seed, int k, int columns, int bits, int spread) {
  std::mt19937 random(seed);
  Block block{k, columns, {}, {}, {}};
  for (int i = 0; i < kMatrixRows * k; ++i) block.a.push_back(draw(random, bits, spread));
  for (int i = 0; i < k * columns; ++i) block.b.push_back(draw(random, bits, spread));
  for (int i = 0; i < kMatrixRows * columns; ++i) block.c.push_back(draw(random, 24, 2 * spread));
  return block;
}

constexpr ProductRule kF16Rule{0x1p-14f, 0x1p-14f}, kBf16Rule{0x1p-126f, 0x1p-126f},
    kE4m3Rule{0x1p-6f, 0x1p-6f, false, true}, kE5m2Rule{0x1p-14f, 0x1p-14f, false, true};

std::vector<float> multiplied(const Block& block, const ProductRule& rule) {
  Aligned a(block.a), b(block.b), c(block.c);
  multiply_add(rule, a.data(), b.data(), c.data(), block.k, block.columns);
  return {c.data(), c.data() + block.c.size()};
}

void check_model(const Block& block, const ProductRule& rule) {
  const std::vector<float> got = multiplied(block, rule);
  int wrong = 0;
  for (int m = 0; m < kMatrixRows; ++m) {
    for (int n = 0; n < block.columns; ++n) {
      std::vector<float> row, column;
      for (int k = 0; k < block.k; ++k) {
        row.push_back(block.a[static_cast<std::size_t>(m * block.k + k)]);
        column.push_back(block.b[static_cast<std::size_t>(k * block.columns + n)]);
      }
      const auto at = static_cast<std::size_t>(m * block.columns + n);
      const float want = model(rule, row, column, block.c[at]);
      wrong += got[at] != want;
    }
  }
  CHECK(wrong == 0);
}

// One product a * b on top of c, in every element.
float one_sum(std::vector<float> a, std::vector<float> b, float c) {
  Block block{16, 8, std::vector<float>(256), std::vector<float>(128), std::vector<float>(128, c)};
  for (std::size_t k = 0; k < a.size(); ++k) {
    for (std::size_t m = 0; m < 16; ++m) block.a[m * 16 + k] = a[k];
    for (std::size_t n = 0; n < 8; ++n) block.b[k * 8 + n] = b[k];
  }
  const std::vector<float> got = multiplied(block, kBf16Rule);
  for (float value : got) CHECK(std::bit_cast<int>(value) == std::bit_cast<int>(got[0]));
  return got[0];
}

}  // namespace

TEST_CASE("sums of f16, bf16 and tf32 follow the model bit for bit") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    check_model(draw_block(seed, 16, 8, 11, 4), kF16Rule);     // f16, mma
    check_model(draw_block(seed, 16, 120, 11, 20), kF16Rule);  // f16, with subnormals
    check_model(draw_block(seed, 16, 64, 8, 40), kBf16Rule);   // bf16, far apart
    check_model(draw_block(seed, 8, 16, 11, 20), kBf16Rule);   // tf32
    check_model(draw_block(seed, 4, 8, 11, 2), kBf16Rule);     // m16n8k4
  }
}

TEST_CASE("sums of 8-bit floats keep 13 fractional bits") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    check_model(draw_block(seed, 32, 64, 4, 8), kE4m3Rule);
    check_model(draw_block(seed, 32, 8, 3, 16), kE5m2Rule);
  }
}

TEST_CASE("what the fast sums cannot do") {
  // Subnormal operands and results, exponents beyond f32's, cancellation.
  CHECK(one_sum({0x1p-130f}, {0x1p127f}, 0) == 0x1p-3f);
  CHECK(one_sum({0x1p-70f}, {0x1p-70f}, 0) == 0x1p-140f);
  CHECK(one_sum({0}, {0}, 0x1p-140f) == 0x1p-140f);
  CHECK(one_sum({0x1p100f}, {0x1p100f}, 0) == kInfinity);
  CHECK(one_sum({0x1p100f, -0x1p100f}, {0x1p100f, 0x1p100f}, 3) == 0);
  CHECK(one_sum({0x1p64f}, {0x1p63f}, -0x1p126f) == 0x1p126f);
  // Specials.
  CHECK(one_sum({kInfinity}, {2}, 1) == kInfinity);
  CHECK(one_sum({kInfinity}, {-2}, 1) == -kInfinity);
  CHECK(one_sum({1}, {1}, -kInfinity) == -kInfinity);
  CHECK(std::isnan(one_sum({kInfinity}, {0}, 1)));
  CHECK(std::isnan(one_sum({kInfinity}, {1}, -kInfinity)));
  CHECK(std::isnan(one_sum({0}, {std::nanf("")}, 0)));
  CHECK(std::isnan(one_sum({1}, {1}, std::nanf(""))));
}

TEST_CASE("integer sums wrap or are clamped") {
  alignas(32) std::array<std::int32_t, 16 * 4> a;
  alignas(32) std::array<std::int32_t, 4 * 8> b;
  a.fill(255);
  b.fill(-128);
  for (bool saturate : {false, true}) {
    alignas(32) std::array<std::int32_t, 16 * 8> c;
    c.fill(INT32_MIN + 100);
    multiply_add(a.data(), b.data(), c.data(), 4, 8, saturate);
    CHECK(c[77] == (saturate ? INT32_MIN : INT32_MAX - 130459));
  }
}

TEST_CASE("every f16 code there and back") {
  int wrong = 0;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const int exponent = static_cast<int>(code >> 10 & 31);
    const auto mantissa = static_cast<float>(code & 1023);
    float want =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) want = mantissa == 0 ? kInfinity : std::nanf("");
    if ((code & 0x8000) != 0) want = -want;
    const float got = real_element<Element::f16>(code | 0xabcd0000);
    if (std::isnan(want)) {
      wrong += !std::isnan(got) || f16_bits(got) != 0x7fff;
    } else {
      wrong += got != want || f16_bits(got) != code;
    }
  }
  CHECK(wrong == 0);
  // Ties go to even; what is beyond half of the last step overflows.
  CHECK(f16_bits(1 + 0x1p-11f) == 0x3c00);
  CHECK(f16_bits(1 + 3 * 0x1p-11f) == 0x3c02);
  CHECK(f16_bits(65519) == 0x7bff);
  CHECK(f16_bits(65520) == 0x7c00);
  CHECK(f16_bits(-0x1p-25f) == 0x8000);
  CHECK(f16_bits(0x1.8p-25f) == 1);
}

TEST_CASE("8-bit floats and nibbles") {
  CHECK(kE4m3Values[0x7e] == 448);
  CHECK(std::isnan(kE4m3Values[0x7f]));
  CHECK(kE4m3Values[0x81] == -0x1p-9f);
  CHECK(kE4m3Values[0x38] == 1);
  CHECK(kE5m2Values[0x7b] == 57344);
  CHECK(kE5m2Values[0xfc] == -kInfinity);
  CHECK(std::isnan(kE5m2Values[0x7d]));
  CHECK(kE5m2Values[0x01] == 0x1p-16f);
  CHECK(integer_element<Element::s4>(0x78) == -8);
  CHECK(integer_element<Element::u4>(0x78) == 8);
  CHECK(integer_element<Element::s8>(0x1ff) == -1);
  CHECK(real_element<Element::tf32>(0x3f801fff) == 1);
}

TEST_CASE("where matrix descriptors point") {
  const auto make = [](std::uint64_t mode, std::uint64_t leading, std::uint64_t stride) {
    return MatrixDescriptor::of(mode << 62 | (stride >> 4) << 32 | (leading >> 4) << 16 |
                                0x2000 >> 4);
  };
  SECTION("128 bytes") {
    const MatrixDescriptor k = make(1, 16, 1024);
    CHECK(k.k_major(0, 1) == 0x2010);
    CHECK(k.k_major(3, 0) == 0x2000 + 3 * 128 + 0x30);
    CHECK(k.k_major(13, 1) == 0x2000 + 1024 + 5 * 128 + 0x40);
    const MatrixDescriptor mn = make(1, 2048, 1024);
    CHECK(mn.mn_major(2, 9) == 0x2000 + 1024 + 128 + 0x30);
    CHECK(mn.mn_major(8, 0) == 0x2000 + 2048);
  }
  SECTION("64 and 32 bytes") {
    // Rows of 64 bytes: address bits 7 and 8 swizzle, two rows of one value.
    CHECK(make(2, 16, 512).k_major(2, 0) == 0x2000 + 128 + 0x10);
    CHECK(make(2, 16, 512).k_major(1, 1) == 0x2000 + 64 + 0x10);
    CHECK(make(3, 16, 256).k_major(4, 0) == 0x2000 + 128 + 0x10);
    CHECK(make(3, 4096, 256).mn_major(3, 12) == 0x2000 + 4096 + 256 + 128);
  }
  SECTION("no swizzle: leading and stride change roles") {
    CHECK(make(0, 128, 256).k_major(9, 1) == 0x2000 + 256 + 128 + 16);
    CHECK(make(0, 1024, 128).mn_major(3, 9) == 0x2000 + 3 * 128 + 1024 + 16);
  }
  CHECK_THROWS_AS(MatrixDescriptor::of(std::uint64_t{1} << 49), RaisedFault);
}
