// Which output tile a CTA of the linear grid computes.
#pragma once
#include "/kiln/base/types.cuh"
#include "/kiln/gemm/params.h"

namespace kiln {

struct TilePosition {
  int batch, row, column;  // first row and column of the tile
};

// CTAs that run together should share operands in L2: walk down kGroup tile rows before moving to
// the next tile column, instead of along a whole row of tiles.
template <int kBlockM, int kBlockN>
__device__ __forceinline__ TilePosition tile_position(const GemmParams& params, int index) {
  constexpr int kGroup = 8;
  const int tiles_m = ceil_div(params.m, kBlockM);
  const int tiles_n = ceil_div(params.n, kBlockN);
  const int batch = index / (tiles_m * tiles_n);
  const int in_batch = index % (tiles_m * tiles_n);
  const int first = in_batch / (kGroup * tiles_n) * kGroup;
  const int group_rows = tiles_m - first < kGroup ? tiles_m - first : kGroup;
  const int in_group = in_batch % (kGroup * tiles_n);
  return {batch, (first + in_group % group_rows) * kBlockM, in_group / group_rows * kBlockN};
}

}  // namespace kiln
