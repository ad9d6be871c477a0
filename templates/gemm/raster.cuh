// Assigns an output tile, or a part of its K, to each CTA of the linear grid.
#pragma once
#include "/kiln/base/types.cuh"
#include "/kiln/gemm/params.h"

namespace kiln {

struct TilePosition {
  int batch, row, column;  // first row and column of the tile
  int row_end;             // of rows in groups (groups.cuh): where those of the tile's group end
};

// Returns the position of tile `index` in a rows x columns matrix. Tiles are numbered down kGroup
// tile rows before the next tile column, not along a whole row, so that CTAs that run together
// share operands in L2.
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

// Returns the quotient, rounded down, of `number` from 0 on.
__device__ __forceinline__ int divide(int number, const GemmDivisor& divisor) {
  const u32 doubled = static_cast<u32>(number) * 2;
  return static_cast<int>(__umulhi(doubled, divisor.multiplier) >> divisor.shift);
}

// Returns the position of tile `index` by the host's divisors. The last group of kGroup rows of
// tiles has the rest of them, too.
template <int kBlockM, int kBlockN, int kGroup>
__device__ __forceinline__ TilePosition tile_position(const GemmRaster& raster, int index) {
  const int batch = divide(index, raster.per_batch);
  const int in_batch = index - batch * raster.per_batch.value;
  const int group = min(divide(in_batch, raster.per_group), raster.last_group);
  const int in_group = in_batch - group * raster.per_group.value;
  const bool whole = group < raster.last_group;
  const int column = whole ? in_group / kGroup : divide(in_group, raster.last_rows);
  const int row = group * kGroup + in_group - column * (whole ? kGroup : raster.last_rows.value);
  return {batch, row * kBlockM, column * kBlockN};
}

// The same where the device alone knows how many rows of tiles there are. The host knows the tiles
// of whole groups of rows of tiles.
template <int kBlockM, int kBlockN, int kGroup>
__device__ __forceinline__ TilePosition tile_position_in_group(const GemmRaster& raster, int rows,
                                                               int index) {
  const int last = gemm_last_group(rows, kGroup);
  const int group = min(divide(index, raster.per_group), last);
  const int in_group = index - group * raster.per_group.value, left = rows - group * kGroup;
  const int column = group < last ? in_group / kGroup : in_group / left;
  const int row = group * kGroup + in_group - column * (group < last ? kGroup : left);
  return {0, row * kBlockM, column * kBlockN};
}

// The work of one CTA: a tile, or one of `parts` parts of its K. The parts are whole K-tiles, and
// their numbers of K-tiles differ by at most one.
struct TileShare {
  int tile;
  int part, parts;
  int first_part;    // the tile's first part among all parts of the launch
  int launch_parts;  // number of parts of the launch
  int k_begin, k_end;
};

// The first CTAs compute one whole tile each, in order; then `params.splits` CTAs share each of the
// others. A split covers all tiles, or a last wave that would leave multiprocessors idle.
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
