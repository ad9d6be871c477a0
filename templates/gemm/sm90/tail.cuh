// The last tiles along the rows and columns of wgmma, of which a part lies outside the operand.
//
// The copy engine fills what lies outside with zeros, which takes it longer than to load rows: with
// 154 rows of a, a kernel took 68 us, and 39 us without (N = 2048, K = 17792; H200). So these
// tiles have boxes of their own, which end with the operand. The other rows of their stages hold
// what they held before. No output needs their products, but they must have been written once.
#pragma once
#include "/kiln/gemm/sm90/schedule.cuh"
#include "/kiln/gemm/sm90/tile.cuh"

namespace kiln {

// How many rows and columns of a tile are loaded.
template <class Config>
struct LoadedTile {
  int rows = Config::kBlockM, columns = Config::kBlockN;

  __device__ __forceinline__ LoadedTile() {}
  __device__ __forceinline__ LoadedTile(const GemmRaster& raster, const TilePosition& at) {
    if (at.row == raster.row_tail.begin) rows = raster.row_tail.count;
    if (at.column == raster.column_tail.begin) columns = raster.column_tail.count;
  }

  __device__ __forceinline__ bool has_all_rows() const { return rows == Config::kBlockM; }
  __device__ __forceinline__ bool has_all_columns() const { return columns == Config::kBlockN; }
  __device__ __forceinline__ u32 bytes() const { return (rows + columns) * 128; }
};

// Whether a CTA's later tiles may be loaded in part: its first has written all stages, or
// clear_outside() has.
template <class Config>
__device__ __forceinline__ bool may_load_part(const KTiles& k_tiles) {
  return k_tiles.end - k_tiles.begin >= Config::kStages;
}

// Writes what no copy of the CTA's first tile will write; called by the math groups. The first
// copies are under way meanwhile.
template <class Config>
__device__ __forceinline__ void clear_outside(const GemmParams& params,
                                              const ClusterPlace<Config>& place) {
  using Shape = Sm90Shape<Config>;
  constexpr int kThreads = Config::kGroups * 128;
  const GemmRaster& raster = params.raster;
  if (raster.row_tail.begin < 0 && raster.column_tail.begin < 0) return;
  const LoadedTile<Config> loaded(raster, TileSchedule<Config>(params, place).tile());
  if (loaded.has_all_rows() && loaded.has_all_columns()) return;
  const auto clear = [](u32 from, u32 to) {
#pragma unroll 1
    for (u32 at = from + threadIdx.x * 16; at < to; at += kThreads * 16) {
      store_shared_16(at, {0, 0, 0, 0});
    }
  };
  const KTiles k_tiles = k_tiles_of(place, params, Shape::kBlockK);
  const int stages = min(Config::kStages, k_tiles.end - k_tiles.begin);
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    const u32 rows = Shape::rows(stage), columns = Shape::columns(stage);
    clear(rows + loaded.rows * 128, columns);
    clear(columns + loaded.columns * 128, columns + Shape::Columns::kBytes);
  }
  fence_async_proxy();
  sync_threads<kThreads>(15);
}

}  // namespace kiln
