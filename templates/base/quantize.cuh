// Elements of quantised caches and outputs: 8-bit floats that saturate, and integers.
#pragma once
#include "/kiln/base/math.cuh"
#include "/kiln/base/pack.cuh"

namespace kiln {

template <class T>
inline constexpr bool is_quantized = is_same<T, f8_e4m3> || is_same<T, f8_e5m2> || is_same<T, i8>;

// Whether the arch has instructions that make 8-bit floats.
inline constexpr bool kHasByteFloats = __CUDA_ARCH__ >= 890;

// Stands for a Divisor where values already have their scale.
struct Undivided {
  __device__ __forceinline__ float divide(float x) const { return x; }
};

// Returns x / scale, rounded once: the remainder corrects the product x * inverse. A product of 0
// is left alone, as the correction would take its sign; so is one beyond kFar, where the remainder
// may be NaN and all of these elements saturate anyway.
struct Divisor {
  float scale, inverse;

  __device__ __forceinline__ explicit Divisor(float by) : scale(by), inverse(1.0f / by) {}
  __device__ __forceinline__ float divide(float x) const {
    const float near = x * inverse;
    const float exact = fmaf(fmaf(-near, scale, x), inverse, near);
    constexpr u32 kFar = 0x71000000;  // 6e29
    return (__float_as_uint(near) & 0x7fffffffu) - 1 < kFar ? exact : near;
  }
};

// The same for elements of a group whose scale is made from the largest of them: none is far from
// it, so that only an infinite scale, whose finite elements are 0, needs care. Takes three
// instructions an element in place of seven: with the remainder's sign reversed, a zero keeps its
// own.
struct GroupDivisor {
  float scale, inverse;

  __device__ __forceinline__ explicit GroupDivisor(float by)
      : scale(by < KILN_INFINITY ? by : 0.0f), inverse(1.0f / by) {}
  __device__ __forceinline__ float divide(float x) const {
    const float near = x * inverse;
    return fmaf(-fmaf(near, scale, -x), inverse, near);
  }
};

// An 8-bit float of kDigits bits of fraction, rounded to nearest even, without an instruction for
// it. kLargest: the bits of the largest number.
template <int kDigits, int kBias, u32 kLargest>
__device__ __forceinline__ u32 byte_float(float x) {
  constexpr int kShift = 23 - kDigits;
  const u32 sign = __float_as_uint(x) >> 24 & 0x80u;
  const u32 bits = __float_as_uint(fabsf(x));
  if (bits > 0x7f800000u) return 0x7fu;  // NaN
  const u32 rounded = (bits + (1u << (kShift - 1)) - 1 + (bits >> kShift & 1)) >> kShift;
  constexpr u32 kFirst = static_cast<u32>(127 - kBias + 1) << kDigits;  // the least normal number
  constexpr float kUnits = static_cast<float>(1 << (kBias - 1 + kDigits));
  const u32 number = bits < kFirst << kShift ? __float2uint_rn(fabsf(x) * kUnits)
                                             : rounded - (kFirst - (1u << kDigits));
  return sign | (number < kLargest ? number : kLargest);
}

// Two elements in the low 16 bits, the first in the lowest. kHardware: from sm_89 on.
template <class T, bool kHardware>
__device__ __forceinline__ u32 quantize2(float low, float high) {
  if constexpr (is_same<T, i8>) {
    const int a = min(max(__float2int_rn(low), -128), 127);
    const int b = min(max(__float2int_rn(high), -128), 127);
    return (a & 0xff) | (b & 0xff) << 8;
  } else if constexpr (kHardware) {
    u16 packed;
    if constexpr (is_same<T, f8_e4m3>) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    }
    return packed;
  } else if constexpr (is_same<T, f8_e4m3>) {
    return byte_float<3, 7, 0x7e>(low) | byte_float<3, 7, 0x7e>(high) << 8;
  } else {
    return byte_float<2, 15, 0x7b>(low) | byte_float<2, 15, 0x7b>(high) << 8;
  }
}

// Four e4m3 in a word, by two instructions (sm_89 and later): the second one keeps the other's
// half.
__device__ __forceinline__ u32 pack_e4m3(float x0, float x1, float x2, float x3) {
  u32 packed;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(packed)
      : "f"(x0), "f"(x1), "f"(x2), "f"(x3));
  return packed;
}

// Fills words with an even number of elements, four in each.
template <class T, bool kHardware, int kCount, class Divides>
__device__ __forceinline__ void quantize(const float (&values)[kCount], const Divides& divisor,
                                         u32 (&words)[ceil_div(kCount, 4)]) {
#pragma unroll
  for (u32& word : words) word = 0;
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const u32 pair =
        quantize2<T, kHardware>(divisor.divide(values[i]), divisor.divide(values[i + 1]));
    words[i / 4] |= pair << i % 4 * 8;
  }
}

// Stores kCount elements, a power of two up to 16, at a multiple of their bytes.
template <class T, bool kHardware, int kCount, class Divides>
__device__ __forceinline__ void store_quantized(void* destination, const float (&values)[kCount],
                                                const Divides& divisor) {
  if constexpr (kCount == 1) {
    *static_cast<u8*>(destination) =
        static_cast<u8>(quantize2<T, kHardware>(divisor.divide(values[0]), 0.0f));
  } else {
    u32 words[ceil_div(kCount, 4)];
    quantize<T, kHardware>(values, divisor, words);
    store_words<kCount>(destination, words);
  }
}

}  // namespace kiln
