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
  // in a column, where the kernel computes the transposed output. Of their gates, if they have any.
  __device__ __forceinline__ Pair operator()(int row, int column, int batch) const {
    Pair scales = of_rows(row, batch);
    if constexpr (Config::kScaleB == Scale::vector) {
      const Pair columns = Config::kGate == Gate::none ? of_columns(column, batch)
                                                       : of_gated(column, batch, false);
      scales.first *= columns.first, scales.second *= columns.second;
    }
    return scales;
  }
  // Likewise of the partners of two neighbours' gates.
  __device__ __forceinline__ Pair of_ups(int row, int column, int batch) const {
    Pair scales = of_rows(row, batch);
    if constexpr (Config::kScaleB == Scale::vector) {
      const Pair columns = of_gated(column, batch, true);
      scales.first *= columns.first, scales.second *= columns.second;
    }
    return scales;
  }

 private:
  __device__ __forceinline__ Pair of_rows(int row, int batch) const {
    Pair scales{common_.value(), common_.value()};
    if constexpr (Config::kScaleA == Scale::vector) {
      scales.first *= row_scale<Config>(params_, row, batch);
      scales.second *= row_scale<Config>(params_, row + Config::kSwapped, batch);
    }
    return scales;
  }

  // As of_columns(), one by one: they are read once for a tile of many products.
  __device__ __forceinline__ Pair of_gated(int column, int batch, bool up) const {
    const float* scales = column_scales(params_, batch);
    const int n = params_.n, first = column < n ? column : 0, second = column + 1 < n ? column + 1 : 0;
    if (up) return {scales[up_column<Config::kGate>(first, n)],
                    scales[up_column<Config::kGate>(second, n)]};
    return {scales[gate_column<Config::kGate>(first)], scales[gate_column<Config::kGate>(second)]};
  }

  // Columns outside the matrix have the scale of others: as row_scale().
  __device__ __forceinline__ Pair of_columns(int column, int batch) const {
    const float* scales = column_scales(params_, batch);
    const int first = column < params_.n ? column : 0;
    if constexpr (Config::kSwapped) {
      return {scales[first], scales[first]};
    } else if constexpr (Config::kStores == Access::vectors) {
      const float2 pair = *reinterpret_cast<const float2*>(scales + first);
      return {pair.x, pair.y};
    } else {
      return {scales[first], scales[column + 1 < params_.n ? column + 1 : 0]};
    }
  }

  const GemmParams& params_;
  CommonScale<Config> common_;
};

}  // namespace kiln
