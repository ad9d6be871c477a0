// Which output tile, or which part of its K, a CTA of the linear grid computes.
#pragma once
#include "/kiln/base/types.cuh"
#include "/kiln/gemm/params.h"

namespace kiln {

struct TilePosition {
  int batch, row, column;  // first row and column of the tile
};

// Of a matrix of rows x columns. CTAs that run together should share operands in L2: walk down
// kGroup tile rows before moving to the next tile column, instead of along a whole row of tiles.
template <int kBlockM, int kBlockN, int kGroup = 8>
__device__ __forceinline__ TilePosition tile_position(int rows, int columns, int index) {
  const int tiles_m = ceil_div(rows, kBlockM);
  const int tiles_n = ceil_div(columns, kBlockN);
  const int batch = index / (tiles_m * tiles_n);
  const int in_batch = index % (tiles_m * tiles_n);
  const int first = in_batch / (kGroup * tiles_n) * kGroup;
  const int group_rows = tiles_m - first < kGroup ? tiles_m - first : kGroup;
  const int in_group = in_batch % (kGroup * tiles_n);
  return {batch, (first + in_group % group_rows) * kBlockM, in_group / group_rows * kBlockN};
}

// What one CTA computes: a tile, or one of the `parts` parts of its K, which are whole K-tiles and
// differ by at most one.
struct TileShare {
  int tile;
  int part, parts;
  int first_part;    // of the tile, among all parts of the launch
  int launch_parts;  // how many these are
  int k_begin, k_end;
};

// A CTA for each whole tile, in order; then `params.splits` for each of the others. So many tiles
// may be split as a last wave would leave multiprocessors idle, or all of them.
template <int kBlockK>
__device__ __forceinline__ TileShare tile_share(const GemmParams& params, int cta) {
  TileShare share{cta, 0, 1, 0, 0, 0, params.k};
  const int index = cta - params.whole_tiles;
  if (index < 0) return share;
  const int split_tile = index / params.splits;
  const i64 k_tiles = ceil_div(params.k, kBlockK);
  share.tile = params.whole_tiles + split_tile;
  share.first_part = split_tile * params.splits;
  share.part = index - share.first_part;
  share.parts = params.splits;
  share.launch_parts = static_cast<int>(gridDim.x) - params.whole_tiles;
  share.k_begin = static_cast<int>(k_tiles * share.part / params.splits * kBlockK);
  const i64 end = k_tiles * (share.part + 1) / params.splits * kBlockK;
  if (end < params.k) share.k_end = static_cast<int>(end);
  return share;
}

}  // namespace kiln
