// Approximate functions of the special-function unit, and the base-2 constants of softmax.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

inline constexpr float kLog2e = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;
#define KILN_INFINITY __int_as_float(0x7f800000)

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Computes 1 - 2 / (e^2x + 1), absolute error near 2e-7 everywhere.
__device__ __forceinline__ float tanh_fast(float x) {
  return 1.0f - 2.0f * reciprocal_approx(exp2_approx(2.0f * kLog2e * x) + 1.0f);
}

// Whether tanh_of_logit() is one instruction. PTX promises a relative error of 2^-11 for it, which
// at a softcap of 50 would be 2 % of a weight. Hopper's is 2^-16.4 (over all operands, on an H200).
inline constexpr bool kHasTanh = __CUDA_ARCH__ == 900;

__device__ __forceinline__ float tanh_of_logit(float x) {
  if constexpr (kHasTanh) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  } else {
    return tanh_fast(x);
  }
}
__device__ __forceinline__ float sigmoid_fast(float x) {
  return reciprocal_approx(1.0f + exp2_approx(-kLog2e * x));
}

// The standard normal distribution function, from erfc of Abramowitz and Stegun, 7.1.26, with an
// absolute error near 1e-7. erff() has two branches and takes three times as long.
__device__ __forceinline__ float normal_cdf_fast(float x) {
  const float t = reciprocal_approx(1.0f + 0.2316419f * fabsf(x));
  const float polynomial =
      t * (0.127414796f +
           t * (-0.142248368f + t * (0.7107068705f + t * (-0.7265760135f + t * 0.5307027145f))));
  const float tail = polynomial * exp2_approx(-0.5f * kLog2e * x * x);
  return x < 0.0f ? tail : 1.0f - tail;
}

}  // namespace kiln
