// The producer of the sm_90a GEMM: one thread that keeps the ring of stages filled. The others of
// its warp help it to find tiles of rows in groups.
#pragma once
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/sm90/residual.cuh"
#include "/kiln/gemm/sm90/schedule.cuh"
#include "/kiln/gemm/sm90/tile.cuh"

namespace kiln {

// Runs ahead of the math groups by up to the length of the ring, even into the next tile.
template <class Config>
__device__ __forceinline__ void load_tiles(const GemmSm90Params<TensorMap>& params,
                                           const ClusterPlace<Config>& place) {
  using Shape = Sm90Shape<Config>;
  const GemmParams& gemm = params.gemm;
  const auto ring = Shape::ring();
  auto position = ring.producer();
  const bool rows_batched = (Config::kSwapped ? gemm.b_batch : gemm.a_batch) != 0;
  const bool columns_batched = (Config::kSwapped ? gemm.a_batch : gemm.b_batch) != 0;
  const KTiles k_tiles = k_tiles_of(place, gemm.k, Shape::kBlockK);
  for (TileSchedule<Config> schedule(gemm, place); schedule.has_tile(); schedule.advance()) {
    const TilePosition at = schedule.tile();
    if (Config::kGrouping != Grouping::none && threadIdx.x % 32 != 0) continue;
    const int rows_batch = rows_batched ? at.batch : 0;
    const int columns_batch = columns_batched ? at.batch : 0;
#pragma unroll 1
    for (int k_tile = k_tiles.begin; k_tile < k_tiles.end; ++k_tile) {
      const int k = k_tile * Shape::kBlockK;
      wait(ring.empty(position.stage), position.parity);
      const u32 full = ring.full(position.stage);
      arrive_expecting(full, Shape::kStageBytes);
      Shape::Rows::load(Shape::rows(position.stage), params.rows, full, at.row, k, rows_batch, 0);
      Shape::Columns::load(Shape::columns(position.stage), params.columns, full, at.column, k,
                           columns_batch, place.rank);
      position.advance();
    }
    if constexpr (Config::kResidualBoxes) {
      ResidualTile<Config>::load(params.residual, position, at.row, at.column,
                                 gemm.residual_batch != 0 ? at.batch : 0);
    }
  }
}

}  // namespace kiln
