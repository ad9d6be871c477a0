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
    // x / 2 (1 + tanh(u)), without the difference of nearly equal numbers far below 0.
    constexpr float kTwice = 2.0f * 0.7978845608028654f;  // sqrt(2 / pi)
    return x * sigmoid_fast(kTwice * (x + 0.044715f * x * x * x));
  } else if constexpr (kActivation == Activation::silu) {
    return x * sigmoid_fast(x);
  } else {
    return x;
  }
}

}  // namespace kiln
