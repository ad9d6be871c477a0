// The scales of a GEMM's operands: factors of its sums, read where the output is made.
#pragma once
#include "/kiln/gemm/params.h"

namespace kiln {

// What a scale is a factor of: all outputs, or each row (of A) or column (of B) its own.
enum class Scale { none, tensor, vector };

// What all outputs are multiplied by.
template <class Config>
class CommonScale {
  static constexpr bool kFromMemory =
      Config::kScaleA == Scale::tensor || Config::kScaleB == Scale::tensor;

 public:
  // Reads memory once, far ahead of the use.
  __device__ __forceinline__ explicit CommonScale(const GemmParams& params) : params_(params) {
    if constexpr (kFromMemory) value_ = params.alpha;
    if constexpr (Config::kScaleA == Scale::tensor) value_ *= *params.scale_a;
    if constexpr (Config::kScaleB == Scale::tensor) value_ *= *params.scale_b;
  }
  __device__ __forceinline__ float value() const {
    if constexpr (kFromMemory) {
      return value_;
    } else {
      return params_.alpha;
    }
  }

 private:
  const GemmParams& params_;
  float value_;
};

// What a row's outputs are multiplied by beside that. A row outside the matrix, of which nothing is
// stored, has the scale of another: a branch would cost more registers.
template <class Config>
__device__ __forceinline__ float row_scale(const GemmParams& params, int row, int batch) {
  if constexpr (Config::kScaleA == Scale::vector) {
    return params.scale_a[batch * params.scale_a_batch + (row < params.m ? row : 0)];
  } else {
    return 1.0f;
  }
}

// The scales of columns, if they have any.
__device__ __forceinline__ const float* column_scales(const GemmParams& params, int batch) {
  return params.scale_b + batch * params.scale_b_batch;
}

}  // namespace kiln
