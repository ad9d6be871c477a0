// The scales of a GEMM's operands. They multiply its sums and are read in the epilogue, except for
// scales of blocks (sm90/block_scales.cuh), which this file does not read.
#pragma once
#include "/kiln/base/byte_scales.cuh"
#include "/kiln/gemm/params.h"

namespace kiln {

// A scale has one value for all outputs (tensor), or one for each row of A or column of B (vector),
// or one of these for each 128 of K (groups), or one for each 128 columns of B and 128 of K
// (blocks). Both operands have the last two, or neither.
enum class Scale { none, tensor, vector, groups, blocks };

template <class Config>
inline constexpr bool kBlockScaled = Config::kScaleA == Scale::groups;

// Whether shared memory has room for a bias. With scales of blocks it has only if there is one.
template <class Config>
constexpr bool has_bias_room() {
  if constexpr (kBlockScaled<Config>) {
    return Config::kHasBias;
  } else {
    return true;
  }
}

// The factor that all outputs have in common: alpha times the scales of whole tensors.
template <class Config>
class CommonScale {
  static constexpr bool kFromMemory =
      Config::kScaleA == Scale::tensor || Config::kScaleB == Scale::tensor;

 public:
  // Reads memory once, long before the value is used.
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

// Returns the additional factor of a row's outputs. A row outside the matrix gets the scale of row
// 0: it is not stored, and a branch would cost more registers.
template <class Config>
__device__ __forceinline__ float row_scale(const GemmParams& params, int row, int batch) {
  if constexpr (Config::kScaleA == Scale::vector) {
    return params.scale_a[batch * params.scale_a_batch + (row < params.m ? row : 0)];
  } else {
    return 1.0f;
  }
}

// Returns the scales of the columns; only used if Config::kScaleB is Scale::vector.
__device__ __forceinline__ const float* column_scales(const GemmParams& params, int batch) {
  return params.scale_b + batch * params.scale_b_batch;
}

}  // namespace kiln
