// `a * tanh(b * logit)` as the hooks of a variant: tanh() alone, of logits that are multiplied by
// cap_before() ahead of it and by cap_after() > 0 behind it.
#pragma once
#include "/kiln/base/math.cuh"

namespace kiln {

// Stands for the logit in the expression of b, and for the tanh in that of a: 1 at first. Kernels
// compute both for each tile of keys, where a quotient of C++ would take 17 instructions.
struct CapFactor {
  float value;

  __device__ __forceinline__ CapFactor(float start) : value(start) {}
  __device__ __forceinline__ explicit operator float() const { return value; }
  __device__ __forceinline__ CapFactor operator+() const { return value; }
  __device__ __forceinline__ CapFactor operator-() const { return -value; }
};
__device__ __forceinline__ CapFactor operator*(CapFactor a, float b) { return a.value * b; }
__device__ __forceinline__ CapFactor operator*(float a, CapFactor b) { return a * b.value; }
__device__ __forceinline__ CapFactor operator/(CapFactor a, float b) {
  return a.value * reciprocal_approx(b);
}

// Exponents take the size of `a` for their scale, which is kept above 0, may not be infinite where
// masks hide, and is never NaN. All logits are 0 or NaN for such an `a`, as by the expression.
__device__ __forceinline__ bool is_cap_scale(float a) {
  return fabsf(a) >= 0x1p-126f && fabsf(a) < KILN_INFINITY;
}
// tanh is odd: b takes the sign of a.
__device__ __forceinline__ float cap_before(CapFactor b, float a) {
  return is_cap_scale(a) ? (a < 0.0f ? -b.value : b.value) : 0.0f * a;
}
__device__ __forceinline__ float cap_after(float a) { return is_cap_scale(a) ? fabsf(a) : 1.0f; }

}  // namespace kiln
