// The producer of the sm_90a GEMM: one thread that keeps the ring of stages filled. The others of
// its warp help it to find tiles of rows in groups.
#pragma once
#include "/kiln/base/launches.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/sm90/residual.cuh"
#include "/kiln/gemm/sm90/schedule.cuh"
#include "/kiln/gemm/sm90/tail.cuh"
#include "/kiln/gemm/sm90/tile.cuh"

namespace kiln {

// Runs ahead of the math groups by up to the length of the ring, even into the next tile. Called by
// one thread, with the position of its first tile, if it has any. If the caller allows it, what the
// ring holds of that tile's part of b is loaded ahead of the wait for earlier launches. If rows are
// in groups it is called by a warp, without that position, which those launches may decide.
template <class Config>
__device__ __forceinline__ void load_tiles(const GemmSm90Params<TensorMap>& params,
                                           const ClusterPlace<Config>& place,
                                           const TilePosition& first) {
  using Shape = Sm90Shape<Config>;
  const GemmParams& gemm = params.gemm;
  const auto ring = Shape::ring();
  auto position = ring.producer();
  const bool rows_batched = (Config::kSwapped ? gemm.b_batch : gemm.a_batch) != 0;
  const bool columns_batched = (Config::kSwapped ? gemm.a_batch : gemm.b_batch) != 0;
  using Loaded = LoadedTile<Config>;
  Loaded loaded;
  const auto load_rows = [&](u32 stage, const TilePosition& at, int k) {
    Shape::Rows::load(Shape::rows(stage), loaded.has_all_rows() ? params.rows : params.row_tail,
                      ring.full(stage), at.row, k, rows_batched ? at.batch : 0, 0, 0, loaded.rows);
  };
  const auto load_columns = [&](u32 stage, const TilePosition& at, int k) {
    Shape::Columns::load(Shape::columns(stage),
                         loaded.has_all_columns() ? params.columns : params.column_tail,
                         ring.full(stage), at.column, k, columns_batched ? at.batch : 0, place.tile,
                         place.rank_of(place.part, 0), loaded.columns);
  };
  // b's part of a stage comes first, and announces all of the stage's bytes.
  const auto load_b = [&](u32 stage, const TilePosition& at, int k) {
    arrive_expecting(ring.full(stage), loaded.bytes());
    Config::kSwapped ? load_rows(stage, at, k) : load_columns(stage, at, k);
  };
  const auto load_a = [&](u32 stage, const TilePosition& at, int k) {
    Config::kSwapped ? load_columns(stage, at, k) : load_rows(stage, at, k);
  };
  const KTiles k_tiles = k_tiles_of(place, gemm, Shape::kBlockK);
  int ahead = 0;  // K-tiles of the first tile whose part of b is under way
  const auto load_tile = [&](const TilePosition& at) {
#pragma unroll 1
    for (int k_tile = k_tiles.begin; k_tile < k_tiles.end; ++k_tile) {
      const int k = k_tile * Shape::kBlockK;
      wait(ring.empty(position.stage), position.parity);
      if (ahead > 0) {
        --ahead;
      } else {
        load_b(position.stage, at, k);
      }
      load_a(position.stage, at, k);
      position.advance();
    }
    if constexpr (Config::kResidualBoxes) {
      ResidualTile<Config>::load(params.residual, position, at.row, at.column,
                                 gemm.residual_batch != 0 ? at.batch : 0);
    }
  };
  TileSchedule<Config> schedule(gemm, place);
  if constexpr (kGrouped<Config>) {
    const bool leads = elect_lane();
    wait_for_launches();  // which may have written where the groups lie
    let_dependents_begin();
    for (; schedule.has_tile(); schedule.advance()) {
      if (leads) load_tile(schedule.tile());
    }
  } else {
    loaded = Loaded(gemm.raster, first);
    if (gemm.weights_ahead != 0 && schedule.has_tile()) {
      const int count = k_tiles.end - k_tiles.begin;
#pragma unroll 1
      for (; ahead < count && ahead < Config::kStages; ++ahead) {
        load_b(ahead, first, (k_tiles.begin + ahead) * Shape::kBlockK);
      }
    }
    wait_for_launches();
    TilePosition at = first;
    while (schedule.has_tile()) {
      if (schedule.is_last()) let_dependents_begin();
      load_tile(at);
      schedule.advance();
      at = schedule.tile();
      loaded = may_load_part<Config>(k_tiles) ? Loaded(gemm.raster, at) : Loaded();
    }
  }
}

}  // namespace kiln
