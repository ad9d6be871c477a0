// Maps each register of a warp's accumulators to its element of a tile. Softmax, mask, variant and
// epilogue code reaches accumulators only through such a map, so that kernels on mma.sync and on
// wgmma share it: their accumulators have the same layout.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// One warp's part of a tile: kRowTiles x kColTiles blocks of 16 x 8. A lane holds kRows rows of
// kCols columns each; the four lanes of a quad share their rows. (A warp of a wgmma holds 16 rows,
// so kRowTiles is 1.)
template <int kRowTiles_, int kColTiles_>
struct FragMap {
  static constexpr int kRowTiles = kRowTiles_;
  static constexpr int kColTiles = kColTiles_;
  static constexpr int kRows = 2 * kRowTiles;
  static constexpr int kCols = 2 * kColTiles;

  // row() and col() map the lane's row r and column c to the tile's.
  __device__ __forceinline__ static int row(int r) {
    return (r >> 1) * 16 + (r & 1) * 8 + (threadIdx.x % 32) / 4;
  }
  __device__ __forceinline__ static int col(int c) {
    return (c >> 1) * 8 + (threadIdx.x % 4) * 2 + (c & 1);
  }
  // True in exactly one of the lanes that share a row.
  __device__ __forceinline__ static bool leads_row() { return threadIdx.x % 4 == 0; }

  __device__ __forceinline__ static float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
  }
  __device__ __forceinline__ static float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
  }
};

// The accumulators in the register order of the matrix instructions.
template <class Map_>
struct Fragment {
  using Map = Map_;
  float block[Map::kRowTiles][Map::kColTiles][4];

  __device__ __forceinline__ float& at(int r, int c) {
    return block[r >> 1][c >> 1][(r & 1) * 2 + (c & 1)];
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < Map::kRows; ++r) {
#pragma unroll
      for (int c = 0; c < Map::kCols; ++c) at(r, c) = 0.0f;
    }
  }
};

}  // namespace kiln
