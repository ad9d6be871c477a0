// Activation functions of one fp32 value.
#pragma once
#include "/kiln/base/math.cuh"

namespace kiln {

enum class Activation { none, relu, gelu, gelu_tanh, silu };

template <Activation kActivation>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kActivation == Activation::relu) {
    return x < 0.0f ? 0.0f : x;  // keeps NaN, unlike max
  } else if constexpr (kActivation == Activation::gelu) {
    return x * normal_cdf_fast(x);
  } else if constexpr (kActivation == Activation::gelu_tanh) {
    return 0.5f * x * (1.0f + tanh_fast(0.7978845608028654f * (x + 0.044715f * x * x * x)));
  } else if constexpr (kActivation == Activation::silu) {
    return x * sigmoid_fast(x);
  } else {
    return x;
  }
}

}  // namespace kiln
