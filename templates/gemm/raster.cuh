// Which output tile, and which part of K, a CTA of the linear grid computes.
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

// The part of K, from `begin` up to `end`, of one of `params.splits` CTAs that share a tile. Parts
// are whole K-tiles and differ by at most one; there may be fewer K-tiles than parts.
struct SplitRange {
  int begin, end;
};

template <int kBlockK>
__device__ __forceinline__ SplitRange split_range(const GemmParams& params, int split) {
  const i64 tiles = ceil_div(params.k, kBlockK);
  const i64 begin = tiles * split / params.splits * kBlockK;
  const i64 end = tiles * (split + 1) / params.splits * kBlockK;
  return {static_cast<int>(begin), static_cast<int>(end < params.k ? end : params.k)};
}

}  // namespace kiln
