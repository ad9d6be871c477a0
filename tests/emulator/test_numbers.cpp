// The number formats: every value of the small ones against their definition, and every rounding
// against a search among neighbours.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "runtime/emulator/arithmetic/exact.h"
#include "runtime/emulator/arithmetic/numbers.h"
#include "tests/support/catch.h"

namespace kiln::runtime::emulator {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array kModes = {Rounding::rn, Rounding::rna, Rounding::rz, Rounding::rm,
                               Rounding::rp};

// The value of bits by the definition of a binary format; NaN for NaN.
double defined(int exponent_bits, int mantissa_bits, bool ieee, unsigned bits) {
  const unsigned fraction = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int last = (1 << exponent_bits) - 1, bias = last / 2;
  const double sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1 : 1;
  if (ieee && exponent == last) return fraction == 0 ? sign * kInfinity : std::nan("");
  if (!ieee && exponent == last && fraction + 1 == 1u << mantissa_bits) return std::nan("");
  const double significand = std::ldexp(fraction, -mantissa_bits) + (exponent != 0 ? 1 : 0);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias);
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

// A format under test: its widening, its narrowing, and its finite magnitudes in order.
template <class Widen, class Narrow>
struct Tested {
  int exponent_bits, mantissa_bits;
  bool ieee;
  unsigned nan;
  Widen widen;
  Narrow narrow;

  unsigned sign() const { return 1u << (exponent_bits + mantissa_bits); }
  std::vector<double> magnitudes() const {
    std::vector<double> values;
    for (unsigned bits = 0; bits < sign(); ++bits) {
      const double value = defined(exponent_bits, mantissa_bits, ieee, bits);
      if (std::isfinite(value)) values.push_back(value);
    }
    return values;
  }

  void check_widening() const {
    for (unsigned bits = 0; bits < 2 * sign(); ++bits) {
      if (!same(widen(bits), defined(exponent_bits, mantissa_bits, ieee, bits))) {
        FAIL_CHECK("widening " << bits << " gives " << widen(bits));
      }
    }
  }

  // Between each two neighbours: at them, at the middle, and next to the middle and to them.
  void check_narrowing() const {
    const std::vector<double> values = magnitudes();
    const double step = values.back() - values[values.size() - 2];
    for (unsigned low = 0; low < values.size(); ++low) {
      const double from = values[low];
      const double to = low + 1 < values.size() ? values[low + 1] : from + step;
      const double middle = from + (to - from) / 2;
      for (double x : {from, std::nextafter(from, kInfinity), std::nextafter(middle, 0.0), middle,
                       std::nextafter(middle, kInfinity), std::nextafter(to, 0.0)}) {
        check(x, low, from, middle);
        check(-x, low, from, middle);
      }
    }
    CHECK(narrow(std::nan(""), Narrowing{}) == nan);
    CHECK(narrow(-std::nan(""), Narrowing{.satfinite = true, .relu = true}) == nan);
    CHECK(narrow(-0.0, Narrowing{}) == sign());
    CHECK(narrow(-0.0, Narrowing{.relu = true}) == 0);
    const auto largest = static_cast<unsigned>(values.size() - 1);
    CHECK(narrow(kInfinity, Narrowing{.satfinite = true}) == largest);
    CHECK(narrow(-1e300, Narrowing{.satfinite = true}) == (largest | sign()));
    CHECK(narrow(-1e300, Narrowing{.relu = true}) == 0);
    CHECK(narrow(kInfinity, Narrowing{}) == (ieee ? largest + 1 : nan));
    CHECK(narrow(1e300, Narrowing{.rounding = Rounding::rz}) == largest);
  }

  void check(double x, unsigned low, double from, double middle) const {
    const double magnitude = std::fabs(x);
    const bool negative = std::signbit(x);
    for (Rounding mode : kModes) {
      bool up = false;
      if (magnitude != from) {
        if (mode == Rounding::rn) up = magnitude > middle || (magnitude == middle && low % 2 == 1);
        if (mode == Rounding::rna) up = magnitude >= middle;
        if (mode == Rounding::rm) up = negative;
        if (mode == Rounding::rp) up = !negative;
      }
      unsigned want = low + (up ? 1 : 0);
      const bool beyond = std::isnan(defined(exponent_bits, mantissa_bits, ieee, want));
      want = beyond ? nan : want | (negative ? sign() : 0);
      const unsigned got = narrow(x, Narrowing{.rounding = mode});
      if (got != want) {
        FAIL_CHECK(x << " in mode " << static_cast<int>(mode) << " gives " << got << ", not "
                     << want);
      }
    }
  }
};
template <class Widen, class Narrow>
Tested(int, int, bool, unsigned, Widen, Narrow) -> Tested<Widen, Narrow>;

const Tested kTestedF16{5,
                        10,
                        true,
                        kNan16,
                        [](unsigned b) { return f16_to_f32(static_cast<std::uint16_t>(b)); },
                        [](double x, Narrowing how) -> unsigned { return f64_to_f16(x, how); }};
const Tested kTestedBf16{8,
                         7,
                         true,
                         kNan16,
                         [](unsigned b) { return bf16_to_f32(static_cast<std::uint16_t>(b)); },
                         [](double x, Narrowing how) -> unsigned { return f64_to_bf16(x, how); }};
const Tested kTestedE4m3{4,
                         3,
                         false,
                         kNan8,
                         [](unsigned b) { return e4m3_to_f32(static_cast<std::uint8_t>(b)); },
                         [](double x, Narrowing how) -> unsigned { return f64_to_e4m3(x, how); }};
const Tested kTestedE5m2{5,
                         2,
                         true,
                         kNan8,
                         [](unsigned b) { return e5m2_to_f32(static_cast<std::uint8_t>(b)); },
                         [](double x, Narrowing how) -> unsigned { return f64_to_e5m2(x, how); }};

TEST_CASE("every value of the 16-bit and 8-bit formats widens to what it is") {
  kTestedF16.check_widening();
  kTestedBf16.check_widening();
  kTestedE4m3.check_widening();
  kTestedE5m2.check_widening();
}

TEST_CASE("narrowing rounds to the right neighbour in every mode") {
  kTestedF16.check_narrowing();
  kTestedBf16.check_narrowing();
  kTestedE4m3.check_narrowing();
  kTestedE5m2.check_narrowing();
}

TEST_CASE("tf32 is rounded to 10 bits of mantissa in an f32's layout") {
  CHECK(f64_to_tf32(1.0) == 0x3f800000u);
  CHECK(f64_to_tf32(1.0 + 0x1p-11) == 0x3f802000u);  // a tie, away from zero
  CHECK(f64_to_tf32(1.0 + 0x1p-11, {.rounding = Rounding::rn}) == 0x3f800000u);
  CHECK(f64_to_tf32(1.0 + 0x1p-10 - 0x1p-23, {.rounding = Rounding::rz}) == 0x3f800000u);
  CHECK(f64_to_tf32(-1e39) == 0xff800000u);
  CHECK(f64_to_tf32(0x1p-149) == 0u);
}

// The fast ways agree with the exact one on floats around every number of the target.
TEST_CASE("the fast narrowings of f32 agree with the exact ones") {
  for (std::uint64_t high = 0; high < 0x10000; ++high) {
    for (std::uint32_t low : {0u, 1u, 0x7ffu, 0xfffu, 0x1000u, 0x1001u, 0x1fffu, 0x3000u, 0x7fffu,
                              0x8000u, 0x8001u, 0xf000u, 0xffffu}) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(high << 16) | low);
      if (f32_to_bf16(x) != f64_to_bf16(x)) FAIL_CHECK("bf16 of " << x);
      if (f32_to_f16(x) != f64_to_f16(x)) FAIL_CHECK("f16 of " << x);
    }
  }
}

TEST_CASE("fma in double with a sticky bit equals the library's fma") {
  std::mt19937 random(1);
  int differing = 0;
  for (int i = 0; i < 2000000; ++i) {
    const std::uint32_t bits[] = {static_cast<std::uint32_t>(random()),
                                  static_cast<std::uint32_t>(random()),
                                  static_cast<std::uint32_t>(random())};
    const auto a = std::bit_cast<float>(bits[0]), b = std::bit_cast<float>(bits[1]);
    auto c = std::bit_cast<float>(bits[2]);
    if (i % 2 == 1) c = -a * b;  // cancels but for the rounding
    if (i % 4 == 3) c = std::nextafter(c * 0x1p23f, 0.0f);
    const float want = std::fma(a, b, c), got = fma_rn(a, b, c);
    if (!same(got, want)) ++differing;
  }
  CHECK(differing == 0);
  // Just below a tie: a sum rounded to double would be the tie.
  CHECK(fma_rn(0x1.00001p-24f, 1 - 0x1p-20f, 1 + 0x1p-23f) == 1 + 0x1p-23f);
}

TEST_CASE("double to float in the directed modes brackets the value") {
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    // Exponents that floats have, and some beyond at both ends.
    const double x = std::ldexp(static_cast<double>(random() >> 11) * 0x1p-52,
                                static_cast<int>(random() % 300) - 160) *
                     (random() % 2 == 0 ? 1 : -1);
    const double down = f64_to_f32(x, Rounding::rm), up = f64_to_f32(x, Rounding::rp);
    CHECK(down <= x);
    CHECK(up >= x);
    const bool adjacent =
        down == up || std::nextafter(static_cast<float>(down), INFINITY) == static_cast<float>(up);
    CHECK(adjacent);
    CHECK(f64_to_f32(x, Rounding::rz) == (x < 0 ? up : down));
    CHECK(f64_to_f32(x, Rounding::rn) == static_cast<float>(x));
  }
}

TEST_CASE("integers round in every mode") {
  constexpr std::uint64_t kTie = (std::uint64_t{1} << 24) + 1;
  CHECK(integer_to_f32(kTie, false, Rounding::rn) == 0x1p24f);
  CHECK(integer_to_f32(kTie, false, Rounding::rp) == 0x1p24f + 2);
  CHECK(integer_to_f32(kTie, true, Rounding::rm) == -0x1p24f - 2);
  CHECK(integer_to_f32(~std::uint64_t{0}, false, Rounding::rn) == 0x1p64f);
  CHECK(integer_to_f64(~std::uint64_t{0}, false, Rounding::rz) == 0x1.fffffffffffffp63);
  CHECK(integer_to_f16(65519, false, Rounding::rn) == 0x7bff);
  CHECK(integer_to_f16(65520, false, Rounding::rn) == 0x7c00);
  CHECK(integer_to_f16(0, true, Rounding::rn) == 0);
  CHECK(integer_to_bf16(257, false, Rounding::rn) == f32_to_bf16(257.0f));
}

TEST_CASE("exact arithmetic to nearest equals the host's") {
  std::mt19937_64 random(3);
  int differing = 0;
  for (int i = 0; i < 200000; ++i) {
    const auto a = std::bit_cast<double>(random());
    auto b = std::bit_cast<double>(random());
    auto c = std::bit_cast<double>(random());
    if (i % 2 == 1) b = a * (1 + 0x1p-50 * static_cast<double>(random() % 64));
    if (i % 4 >= 2) c = -a * b;
    differing += !same(exact_add(kF64, a, -b, Rounding::rn), a - b);
    differing += !same(exact_mul(kF64, a, b, Rounding::rn), a * b);
    differing += !same(exact_div(kF64, a, b, Rounding::rn), a / b);
    differing += !same(exact_fma(kF64, a, b, c, Rounding::rn), std::fma(a, b, c));
    differing += !same(exact_sqrt(kF64, a, Rounding::rn), std::sqrt(a));
  }
  CHECK(differing == 0);
}

}  // namespace
}  // namespace kiln::runtime::emulator
