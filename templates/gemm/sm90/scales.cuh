// Computes the scales of two neighbouring outputs of a thread.
#pragma once
#include "/kiln/gemm/epilogue.cuh"
#include "/kiln/gemm/scales.cuh"

namespace kiln {

template <class Config>
class PairScales {
 public:
  __device__ __forceinline__ explicit PairScales(const GemmParams& params)
      : params_(params), common_(params) {}

  // Returns alpha times all scales of two neighbours in a row of the output, the first in an even
  // column, or in a column if the kernel computes the transposed output.
  __device__ __forceinline__ Pair operator()(int row, int column, int batch) const {
    const Pair rows = of_rows(row, batch);
    if constexpr (Config::kScaleB != Scale::vector) return rows;
    return product(rows, of_columns(column, batch));
  }

  // The same factors for the two outputs' gates and the gates' partners.
  struct Gated {
    Pair gates, ups;
  };
  __device__ __forceinline__ Gated gated(int row, int column, int batch) const {
    const Pair rows = of_rows(row, batch);
    if constexpr (Config::kScaleB != Scale::vector) return {rows, rows};
    const Gated columns = of_gated_columns(column, batch);
    return {product(rows, columns.gates), product(rows, columns.ups)};
  }

 private:
  __device__ __forceinline__ static Pair product(const Pair& a, const Pair& b) {
    return {a.first * b.first, a.second * b.second};
  }

  __device__ __forceinline__ Pair of_rows(int row, int batch) const {
    Pair scales{common_.value(), common_.value()};
    if constexpr (Config::kScaleA == Scale::vector) {
      scales.first *= row_scale<Config>(params_, row, batch);
      scales.second *= row_scale<Config>(params_, row + Config::kSwapped, batch);
    }
    return scales;
  }

  // Treats columns outside the matrix as of_columns() does.
  __device__ __forceinline__ Gated of_gated_columns(int column, int batch) const {
    constexpr Gate kGate = Config::kGate;
    const float* scales = column_scales(params_, batch);
    const int n = params_.n, first = column < n ? column : 0;
    if constexpr (Config::kSwapped) {
      const float gate = scales[gate_column<kGate>(first)], up = scales[up_column<kGate>(first, n)];
      return {{gate, gate}, {up, up}};
    } else if constexpr (Config::kStores == Access::vectors && kGate == Gate::interleaved) {
      const float4 quad = *reinterpret_cast<const float4*>(scales + first * 2);
      return {{quad.x, quad.z}, {quad.y, quad.w}};
    } else if constexpr (Config::kStores == Access::vectors) {
      const float2 gates = *reinterpret_cast<const float2*>(scales + first);
      const float2 ups = *reinterpret_cast<const float2*>(scales + n + first);
      return {{gates.x, gates.y}, {ups.x, ups.y}};
    } else {
      const int next = column + 1 < n ? column + 1 : 0;
      return {{scales[gate_column<kGate>(first)], scales[gate_column<kGate>(next)]},
              {scales[up_column<kGate>(first, n)], scales[up_column<kGate>(next, n)]}};
    }
  }

  // Columns outside the matrix get the scale of column 0, for the reason given at row_scale().
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
