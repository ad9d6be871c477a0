#include "runtime/emulator/arithmetic/convert_values.h"

#include <bit>
#include <cmath>

#include "runtime/emulator/arithmetic/exact.h"

namespace kiln::runtime::emulator {
namespace {

// An integer of up to 64 bits, signed or not.
struct Integer {
  std::uint64_t magnitude = 0;
  bool negative = false;

  std::uint64_t bits() const { return negative ? ~magnitude + 1 : magnitude; }
};

std::uint64_t low_bits(std::uint64_t bits, int count) {
  return count >= 64 ? bits : bits & ((std::uint64_t{1} << count) - 1);
}

Integer read_integer(std::uint64_t bits, Type type) {
  const int count = info(type).bits;
  const std::uint64_t low = low_bits(bits, count);
  if (!is_signed(type) || (low >> (count - 1) & 1) == 0) return {low, false};
  return {low_bits(~low + 1, count), true};
}

// The largest magnitude of a type's positive or negative integers.
std::uint64_t limit(Type type, bool negative) {
  const int count = info(type).bits;
  if (!is_signed(type)) return negative ? 0 : low_bits(~std::uint64_t{0}, count);
  const std::uint64_t half = std::uint64_t{1} << (count - 1);
  return negative ? half : half - 1;
}

// The low bits of an integer, extended to the register as the type's sign says.
std::uint64_t write_integer(const Integer& value, const Conversion& how) {
  const int count = info(how.to).bits;
  std::uint64_t bits = low_bits(value.bits(), count);
  if (is_signed(how.to) && (bits >> (count - 1) & 1) != 0 && count < 64) {
    bits |= ~std::uint64_t{0} << count;
  }
  return low_bits(bits, how.width);
}

double read_real(std::uint64_t bits, const Conversion& how) {
  switch (how.from) {
    case Type::f16:
      return f16_to_f32(static_cast<std::uint16_t>(bits));
    case Type::bf16:
      return bf16_to_f32(static_cast<std::uint16_t>(bits));
    case Type::e4m3:
      return e4m3_to_f32(static_cast<std::uint8_t>(bits));
    case Type::e5m2:
      return e5m2_to_f32(static_cast<std::uint8_t>(bits));
    case Type::f64:
      return std::bit_cast<double>(bits);
    default: {
      const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      // Measured: to f16, the hardware rounds a subnormal f32 as it is, in spite of .ftz.
      return how.ftz && how.to != Type::f16 ? flush(value) : value;
    }
  }
}

std::uint64_t write_real(double value, const Conversion& how) {
  const Narrowing narrowing{how.rounding, how.satfinite, how.relu};
  switch (how.to) {
    case Type::f16:
      return f64_to_f16(value, narrowing);
    case Type::bf16:
      return f64_to_bf16(value, narrowing);
    case Type::tf32:
      return f64_to_tf32(value, narrowing);
    case Type::e4m3:
      return f64_to_e4m3(value, narrowing);
    case Type::e5m2:
      return f64_to_e5m2(value, narrowing);
    case Type::f64:
      return std::bit_cast<std::uint64_t>(value);
    default: {
      const float narrow = f64_to_f32(value, how.rounding);
      if (!how.ftz) return std::bit_cast<std::uint32_t>(narrow);
      const auto exact = [&](const Format& f) { return exact_add(f, value, 0.0, how.rounding); };
      return std::bit_cast<std::uint32_t>(flush_rounded(narrow, exact));
    }
  }
}

double to_integral(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::rz:
      return std::trunc(value);
    case Rounding::rm:
      return std::floor(value);
    case Rounding::rp:
      return std::ceil(value);
    default:
      return std::nearbyint(value);
  }
}

// The fields of a NaN: its payload moves with the top of the mantissa.
struct NanFormat {
  int bits, mantissa_bits;
};
NanFormat nan_format(Type type) {
  switch (type) {
    case Type::f16:
      return {16, 10};
    case Type::bf16:
      return {16, 7};
    case Type::f32:
      return {32, 23};
    default:
      return {64, 52};
  }
}

// Sign and payload kept, quiet.
std::uint64_t moved_nan(const Conversion& how, std::uint64_t bits) {
  const NanFormat from = nan_format(how.from);
  const NanFormat to = nan_format(how.to);
  const std::uint64_t sign = bits >> (from.bits - 1) & 1;
  const std::uint64_t payload = low_bits(bits, from.mantissa_bits);
  const int shift = to.mantissa_bits - from.mantissa_bits;
  const std::uint64_t exponent = low_bits(~std::uint64_t{0}, to.bits - 1 - to.mantissa_bits)
                                 << to.mantissa_bits;
  return sign << (to.bits - 1) | exponent | std::uint64_t{1} << (to.mantissa_bits - 1) |
         (shift >= 0 ? payload << shift : payload >> -shift);
}

// What becomes of a NaN, as measured on an H200: the units that convert from or to f64 keep its
// payload, bf16 to f32 is a shift, all others give the canonical NaN.
std::uint64_t convert_nan(const Conversion& how, std::uint64_t bits) {
  if (how.to == Type::tf32) return 0x7fffe000u;
  if (how.from == Type::f64 || how.to == Type::f64) return moved_nan(how, bits);
  if (how.from == Type::bf16 && how.to == Type::f32) return low_bits(bits, 16) << 16;
  return write_real(read_real(bits, how), how);
}

}  // namespace

std::uint64_t integer_to_integer(const Conversion& how, std::uint64_t bits) {
  Integer value = read_integer(bits, how.from);
  if (how.saturate) {
    const std::uint64_t most = limit(how.to, value.negative);
    if (value.magnitude > most) value.magnitude = most;
  }
  return write_integer(value, how);
}

std::uint64_t integer_to_real(const Conversion& how, std::uint64_t bits) {
  Integer value = read_integer(bits, how.from);
  if (how.saturate) value = {value.negative || value.magnitude == 0 ? 0u : 1u, false};
  switch (how.to) {
    case Type::f16:
      return integer_to_f16(value.magnitude, value.negative, how.rounding);
    case Type::bf16:
      return integer_to_bf16(value.magnitude, value.negative, how.rounding);
    case Type::f64:
      return std::bit_cast<std::uint64_t>(
          integer_to_f64(value.magnitude, value.negative, how.rounding));
    default:
      return std::bit_cast<std::uint32_t>(
          integer_to_f32(value.magnitude, value.negative, how.rounding));
  }
}

std::uint64_t real_to_integer(const Conversion& how, std::uint64_t bits) {
  const double value = read_real(bits, how);
  const int count = info(how.to).bits;
  if (std::isnan(value)) {
    // The lowest bit pattern of a signed type where f64 or 64 bits are involved (PTX ISA, cvt).
    const bool wide = how.from == Type::f64 || count == 64;
    return write_integer({wide ? std::uint64_t{1} << (count - 1) : 0, false}, how);
  }
  const double integral = to_integral(value, how.rounding);
  const bool negative = integral < 0;
  const double magnitude = std::fabs(integral);
  const std::uint64_t most = limit(how.to, negative);
  // 2^64 and more does not fit any type, and has no conversion in C++.
  const bool fits = magnitude < 0x1p64 && static_cast<std::uint64_t>(magnitude) <= most;
  return write_integer({fits ? static_cast<std::uint64_t>(magnitude) : most, negative}, how);
}

std::uint64_t real_to_real(const Conversion& how, std::uint64_t bits) {
  double value = read_real(bits, how);
  if (std::isnan(value) && !how.saturate) return convert_nan(how, bits);
  if (how.to_integral) value = to_integral(value, how.rounding);
  if (how.saturate) value = saturate(value);
  return write_real(value, how);
}

}  // namespace kiln::runtime::emulator
