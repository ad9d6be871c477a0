// The element types of matrix operands: bits to numbers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "runtime/emulator/ptx/types.h"

namespace kiln::runtime::emulator {

enum class Element : std::uint8_t { f16, bf16, tf32, e4m3, e5m2, s8, u8, s4, u4 };

struct ElementInfo {
  std::string_view name;
  std::uint8_t bits;
  bool integer;
};
inline constexpr std::array<ElementInfo, 9> kElements{{{"f16", 16, false},
                                                       {"bf16", 16, false},
                                                       {"tf32", 32, false},
                                                       {"e4m3", 8, false},
                                                       {"e5m2", 8, false},
                                                       {"s8", 8, true},
                                                       {"u8", 8, true},
                                                       {"s4", 4, true},
                                                       {"u4", 4, true}}};
inline const ElementInfo& info(Element element) {
  return kElements[static_cast<std::size_t>(element)];
}

// All 256 values of an 8-bit float, given by its exponent's width and bias.
template <int kExponentBits, int kBias, bool kHasInfinity>
constexpr std::array<float, 256> fp8_values() {
  std::array<float, 256> values{};
  constexpr int mantissa_bits = 7 - kExponentBits;
  constexpr int top = (1 << kExponentBits) - 1;
  for (int code = 0; code < 256; ++code) {
    const int exponent = (code >> mantissa_bits) & top;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const std::uint32_t sign = code & 0x80 ? 0x80000000u : 0u;
    std::uint32_t bits = 0;
    if (kHasInfinity ? exponent == top : (code & 0x7f) == 0x7f) {
      bits = kHasInfinity && mantissa == 0 ? 0x7f800000u : 0x7fffffffu;
    } else if (exponent != 0) {
      bits = static_cast<std::uint32_t>(exponent - kBias + 127) << 23 |
             static_cast<std::uint32_t>(mantissa) << (23 - mantissa_bits);
    } else if (mantissa != 0) {
      float value = static_cast<float>(mantissa);
      for (int i = 0; i < kBias - 1 + mantissa_bits; ++i) value *= 0.5f;
      bits = std::bit_cast<std::uint32_t>(value);
    }
    values[static_cast<std::size_t>(code)] = std::bit_cast<float>(bits | sign);
  }
  return values;
}
inline constexpr std::array<float, 256> kE4m3Values = fp8_values<4, 7, false>();
inline constexpr std::array<float, 256> kE5m2Values = fp8_values<5, 15, true>();

// One element's number; `bits` may hold others above the element's own. Branchless for f16 and
// bf16, so that loops over fragments vectorise.
template <Element kElement>
inline float real_element(std::uint32_t bits) {
  if constexpr (kElement == Element::f16) {
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    // Times 2^112 puts the exponent's bias right, of subnormals as well.
    const std::uint32_t finite =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    const std::uint32_t special = magnitude | 0x7f800000u;
    const std::uint32_t chosen = magnitude >= 0x0f800000u ? special : finite;
    return std::bit_cast<float>(chosen | (bits & 0x8000u) << 16);
  } else if constexpr (kElement == Element::bf16) {
    return std::bit_cast<float>(bits << 16);
  } else if constexpr (kElement == Element::tf32) {
    return std::bit_cast<float>(bits & 0xffffe000u);  // the hardware ignores the low 13 bits
  } else if constexpr (kElement == Element::e4m3) {
    return kE4m3Values[bits & 0xffu];
  } else {
    static_assert(kElement == Element::e5m2);
    return kE5m2Values[bits & 0xffu];
  }
}

template <Element kElement>
inline std::int32_t integer_element(std::uint32_t bits) {
  if constexpr (kElement == Element::s8) {
    return static_cast<std::int8_t>(bits & 0xffu);
  } else if constexpr (kElement == Element::u8) {
    return static_cast<std::int32_t>(bits & 0xffu);
  } else if constexpr (kElement == Element::s4) {
    return static_cast<std::int32_t>((bits & 0xfu) ^ 8u) - 8;
  } else {
    static_assert(kElement == Element::u4);
    return static_cast<std::int32_t>(bits & 0xfu);
  }
}

// A subnormal number's exponent is that of the smallest normal number.
template <Element kElement>
inline constexpr float kLeastNormal = kElement == Element::e4m3   ? 0x1p-6f
                                      : kElement == Element::f16  ? 0x1p-14f
                                      : kElement == Element::e5m2 ? 0x1p-14f
                                                                  : 0x1p-126f;

// What an operand of this element type is kept as while a product is computed.
template <Element kElement>
using ElementValue = std::conditional_t<(kElement >= Element::s8), std::int32_t, float>;
template <Element kElement>
inline ElementValue<kElement> element_value(std::uint32_t bits) {
  if constexpr (kElement >= Element::s8) {
    return integer_element<kElement>(bits);
  } else {
    return real_element<kElement>(bits);
  }
}

// Round to nearest even, as the tensor cores write f16 accumulators.
inline std::uint32_t f16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fffu;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and up
  if (magnitude < 0x38800000u) {                        // below 2^-14: steps of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  const std::uint32_t odd = magnitude >> 13 & 1u;
  return sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

}  // namespace kiln::runtime::emulator
