// Integer and element types of all templates. Device code includes no header from outside this
// folder, because parsing CUDA's own would take longer than compiling the kernel.
#pragma once

namespace kiln {

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8_e4m3 {
  u8 bits;
};
struct f8_e5m2 {
  u8 bits;
};

template <class T, class U>
inline constexpr bool is_same = false;
template <class T>
inline constexpr bool is_same<T, T> = true;

template <bool kCondition, class T, class F>
struct Conditional {
  using type = T;
};
template <class T, class F>
struct Conditional<false, T, F> {
  using type = F;
};
template <bool kCondition, class T, class F>
using conditional = typename Conditional<kCondition, T, F>::type;

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }

// Hides the origin of a value from the compiler, so that computations from it stay where they are
// written and are not hoisted out of a loop into registers that the accumulators need.
__device__ __forceinline__ u32 opaque(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}
template <class T>
__device__ __forceinline__ T* opaque(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

// --- conversions; round to nearest even ---

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(int x) { return static_cast<float>(x); }
__device__ __forceinline__ float to_float(u8 x) { return static_cast<float>(x); }
__device__ __forceinline__ float to_float(bool x) { return x ? 1.0f : 0.0f; }
__device__ __forceinline__ float to_float(bf16 x) {
  return __uint_as_float(static_cast<u32>(x.bits) << 16);
}
__device__ __forceinline__ float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ f16 from_float<f16>(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

// Packs two 16-bit elements into one register, the first in the low half.
template <class T>
__device__ __forceinline__ u32 pack2(float low, float high) {
  static_assert(is_same<T, f16> || is_same<T, bf16>, "pack2: the element must be f16 or bf16");
  u32 packed;
  if constexpr (is_same<T, f16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

// A run-time value in a kernel's argument block. It always takes 8 bytes, so that the host can
// write a block of such values as an array of 64-bit words without knowing the struct.
template <class T>
union Slot {
  T value;
  u64 word;
  __device__ __forceinline__ operator T() const { return value; }
};

}  // namespace kiln
