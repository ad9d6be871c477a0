// The scales of two outputs that a thread has side by side.
#pragma once
#include "/kiln/gemm/epilogue.cuh"
#include "/kiln/gemm/scales.cuh"

namespace kiln {

template <class Config>
class PairScales {
 public:
  __device__ __forceinline__ explicit PairScales(const GemmParams& params)
      : params_(params), common_(params) {}

  // alpha and all scales of two neighbours in a row of the output, the first in an even column; or
  // in a column, where the kernel computes the transposed output.
  __device__ __forceinline__ Pair operator()(int row, int column, int batch) const {
    Pair scales{common_.value(), common_.value()};
    if constexpr (Config::kScaleA == Scale::vector) {
      scales.first *= row_scale<Config>(params_, row, batch);
      scales.second *= row_scale<Config>(params_, row + Config::kSwapped, batch);
    }
    if constexpr (Config::kScaleB == Scale::vector) {
      const Pair columns = of_columns(column, batch);
      scales.first *= columns.first, scales.second *= columns.second;
    }
    return scales;
  }

 private:
  __device__ __forceinline__ Pair of_columns(int column, int batch) const {
    const float* source = column_scale(params_, column, batch);
    const int count = params_.n - column;
    if constexpr (!Config::kSwapped && Config::kStores == Access::vectors) {
      if (count <= 0) return {0.0f, 0.0f};
      const float2 pair = *reinterpret_cast<const float2*>(source);
      return {pair.x, pair.y};
    } else {
      const float first = count > 0 ? source[0] : 0.0f;
      if constexpr (Config::kSwapped) return {first, first};
      return {first, count > 1 ? source[1] : 0.0f};
    }
  }

  const GemmParams& params_;
  CommonScale<Config> common_;
};

}  // namespace kiln
