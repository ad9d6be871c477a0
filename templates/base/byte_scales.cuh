// Scales of 8-bit floats that are bytes themselves, UE8M0: the byte x is 2^(x - 127), and 255 is
// NaN.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Whether a kernel's scales of blocks or groups are such bytes, not floats. A Config says so by
// kByteScales = true, and all others have no such constant.
template <class Config, class = void>
inline constexpr bool kByteScales = false;
template <class Config>
inline constexpr bool kByteScales<Config, decltype(void(Config::kByteScales))> =
    Config::kByteScales;

// The value of a scale, exactly: that of byte 0 is a subnormal number.
__device__ __forceinline__ float float_of_scale(u32 byte) {
  constexpr u32 kLeast = 0x00400000, kNan = 0x7fffffff;
  return __uint_as_float(byte == 0 ? kLeast : byte == 255 ? kNan : byte << 23);
}

// The byte of a power of two, 2^-126 or more. Infinity, which no byte is, becomes NaN.
__device__ __forceinline__ u8 scale_of_float(float power) {
  return static_cast<u8>(__float_as_uint(power) >> 23);
}

}  // namespace kiln
