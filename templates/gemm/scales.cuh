// The scales of a GEMM's operands: factors of its sums, read where the output is made.
#pragma once
#include "/kiln/gemm/params.h"

namespace kiln {

// What a scale is a factor of: all outputs, or each row (of A) or column (of B) its own.
enum class Scale { none, tensor, vector };

// What all outputs are multiplied by.
template <class Config>
__device__ __forceinline__ float common_scale(const GemmParams& params) {
  float scale = params.alpha;
  if constexpr (Config::kScaleA == Scale::tensor) scale *= *params.scale_a;
  if constexpr (Config::kScaleB == Scale::tensor) scale *= *params.scale_b;
  return scale;
}

// What a row's outputs are multiplied by beside that; `row` may lie outside the matrix.
template <class Config>
__device__ __forceinline__ float row_scale(const GemmParams& params, int row, int batch) {
  if constexpr (Config::kScaleA == Scale::vector) {
    return row < params.m ? params.scale_a[batch * params.scale_a_batch + row] : 0.0f;
  } else {
    return 1.0f;
  }
}

// The scales of columns, where kScaleB is Scale::vector.
__device__ __forceinline__ const float* column_scales(const GemmParams& params, int batch) {
  return params.scale_b + batch * params.scale_b_batch;
}

}  // namespace kiln
