// GEMM for Hopper: a persistent, warp-specialised kernel (sm_90a).
//
//   producer warpgroup, one thread of it          math warpgroups
//   ----------------------------------           ---------------
//   for each tile of the schedule                 for each tile of the schedule
//     for each 128 bytes of K                       for each 128 bytes of K
//       wait until the stage is empty                 wait until the stage is full
//       copy rows and columns into it  --ring-->      wgmma; release the stage before
//                                                   epilogue, slabs of shared memory, copy out
//
// The producer runs ahead into the next tile while the math groups write the last one. If there are
// scales of blocks, other warps of its group copy those of each stage.
#pragma once
#include "/kiln/base/launches.cuh"
#include "/kiln/gemm/sm90/block_scales.cuh"
#include "/kiln/gemm/sm90/load.cuh"
#include "/kiln/gemm/sm90/main_loop.cuh"
#include "/kiln/gemm/sm90/meet.cuh"
#include "/kiln/gemm/sm90/promote.cuh"
#include "/kiln/gemm/sm90/split.cuh"
#include "/kiln/gemm/sm90/store.cuh"
#include "/kiln/gemm/sm90/tail.cuh"
#include "/kiln/gemm/sm90/turns.cuh"

namespace kiln {

// Calls multiply_tile() or, if Config::kPromoted, multiply_tile_promoted().
template <class Config>
__device__ __forceinline__ void sum_products(
    typename Sm90Shape<Config>::StageRing::Position& position, int k_tiles, int group,
    float (&sums)[Sm90Shape<Config>::kTilesM][Sm90Shape<Config>::kRegisters]) {
  if constexpr (Config::kPromoted) {
    multiply_tile_promoted<Config>(position, k_tiles, group, sums);
  } else {
    multiply_tile<Config>(position, k_tiles, group, sums);
  }
}

// Writes a group's sums of the tile at `at`, slab by slab.
template <class Config, class Output>
__device__ __forceinline__ void store_tile(
    Output& output, const float (&sums)[Sm90Shape<Config>::kTilesM][Sm90Shape<Config>::kRegisters],
    const TilePosition& at) {
  using Shape = Sm90Shape<Config>;
#pragma unroll
  for (int i = 0; i < Shape::kTilesM * Output::Slab::kSlabs; ++i) {
    const int m = i / Output::Slab::kSlabs, slab = i % Output::Slab::kSlabs;
    const float* slab_sums = sums[m] + slab * Output::kSums;
    output.store(slab_sums, slab_sums + Shape::kPartner, m, slab, at);
  }
}

// Computes each tile of the schedule over its whole K. With kPingPong two math groups take turns on
// the tensor cores: one multiplies its tile while the other writes its own. These turns are needed
// for correctness: a group that waited for its next tile while the other still multiplies could
// mistake an earlier round of a stage for its own (ring.cuh).
template <class Config, class Epilogue>
__device__ __forceinline__ void compute_tiles(const GemmSm90Params<TensorMap>& params, int group,
                                              const ClusterPlace<Config>& place) {
  using Shape = Sm90Shape<Config>;
  using Output = TileStore<Config, Epilogue>;
  constexpr bool kPingPong = Config::kPingPong;
  const int k_tiles = ceil_div(params.gemm.k, Shape::kBlockK);
  auto position = Shape::StageRing::consumer();
  TileSchedule<Config> schedule(params.gemm, place);
  const int tile_group = kPingPong ? 0 : group;  // index among the groups that share a tile
  Output output(params, group, tile_group * Shape::kTilesM * Shape::kOutputRows);
  const auto skip_tile = [&] {
    position.advance_by(k_tiles + ResidualTile<Config>::kStages);
    schedule.advance();
  };
  if constexpr (kPingPong) {
    if (group == 1) {
      give_turn(0);
      skip_tile();
    }
  }
#pragma unroll 1
  for (; schedule.has_tile(); schedule.advance()) {
    const TilePosition at = schedule.tile();
    float sums[Shape::kTilesM][Shape::kRegisters];
    output.begin(at);
    if constexpr (kPingPong) wait_for_turn(group);
    sum_products<Config>(position, k_tiles, tile_group, sums);
    // This must come before give_turn(): the residual's stages belong to rounds that must have
    // ended when the other group waits.
    output.prepare(position);
    if constexpr (kPingPong) give_turn(group ^ 1);
    store_tile<Config>(output, sums, at);
    output.end(position);
    if constexpr (kPingPong) skip_tile();
  }
  output.finish();
}

// Whether a tile's first products are under way while the outputs of the tile before are written,
// which then costs the tensor cores less: where two groups have 192 columns (1.07 to 1.13 times as
// fast, if they also start in turns), but not where they have 256 columns (0.94 to 1.02). Beside a
// residual there are too few registers.
template <class Config, class Epilogue>
constexpr bool starts_ahead() {
  return kBlockScaled<Config> && Config::kBlockN == 192 && Config::kGroups == 2 &&
         !Config::kSplits && !Config::kSwapped && !Epilogue::kResidual;
}

// Does the same as compute_tiles() where starts_ahead().
template <class Config, class Epilogue>
__device__ __forceinline__ void compute_tiles_ahead(const GemmSm90Params<TensorMap>& params,
                                                    int group, const ClusterPlace<Config>& place) {
  using Shape = Sm90Shape<Config>;
  using Output = TileStore<Config, Epilogue>;
  const int k_tiles = ceil_div(params.gemm.k, Shape::kBlockK);
  auto position = Shape::StageRing::consumer();
  TileSchedule<Config> schedule(params.gemm, place);
  Output output(params, group, group * Shape::kTilesM * Shape::kOutputRows);
  if (!schedule.has_tile()) return;
  PartsInTurn<Config, true> parts(group);
  wait(Shape::ring().full(position.stage), position.parity);
  parts.start(position);
#pragma unroll 1
  for (bool has_next = true; has_next;) {
    const TilePosition at = schedule.tile();
    float sums[Shape::kTilesM][Shape::kRegisters];
    clear<Config>(sums);
    output.begin(at);
    parts.add_started_tile(position, k_tiles, sums);
    output.prepare(position);
    schedule.advance();
    has_next = schedule.has_tile();
    // Behind the last tile the products are of its last stage, which nobody loads again, and nobody
    // reads them: on a path without products ptxas would wait for those of the other.
    auto next = position;
    if (has_next) {
      wait(Shape::ring().full(position.stage), position.parity);
    } else {
      next.retreat_by(1);
    }
    parts.start(next);
    store_tile<Config>(output, sums, at);
  }
  parts.finish();
  output.finish();
}

template <class Config, class Epilogue>
using PartsOf = ClusterSum<Config, typename TileStore<Config, Epilogue>::Slab>;

// Computes one tile with the rest of the cluster: each CTA does a part of K, then of the output.
template <class Config, class Epilogue>
__device__ __forceinline__ void compute_shared_tile(const GemmSm90Params<TensorMap>& params,
                                                    int group, const ClusterPlace<Config>& place) {
  using Shape = Sm90Shape<Config>;
  using Output = TileStore<Config, Epilogue>;
  constexpr int kSlabs = Shape::kTilesM * Output::Slab::kSlabs;  // of this group
  const TilePosition at = TileSchedule<Config>(params.gemm, place).tile();
  const KTiles k_tiles = k_tiles_of(place, params.gemm, Shape::kBlockK);
  const int count = k_tiles.end - k_tiles.begin;
  auto position = Shape::StageRing::consumer();
  // The stages behind the last K-tile's are for the sums.
  Output output(params, group, group * Shape::kTilesM * Shape::kOutputRows,
                Shape::rows((count - 1) % Config::kStages));
  output.begin(at);
  const PartsOf<Config, Epilogue> parts(params.gemm, place);
  if (threadIdx.x % 128 == 0) parts.expect(group);
  float sums[Shape::kTilesM][Shape::kRegisters];
  sum_products<Config>(position, count, group, sums);
  if constexpr (Config::kCluster == 1) wait_for_cluster();
  parts.send(sums, group);
  sync_threads<Config::kGroups * 128>(15);  // all groups are done with the stages
  output.prepare(position);
  parts.wait_for_others(group);
  arrive_at_cluster();
#pragma unroll 1
  for (u32 own = place.part, turn = 0; own < parts.kSlabs; own += place.parts, ++turn) {
    const int i = static_cast<int>(own) - group * kSlabs;  // of the tile's slabs, this group's
    if (i < 0 || i >= kSlabs) continue;
    const int m = i / Output::Slab::kSlabs, slab = i % Output::Slab::kSlabs;
    float slab_sums[Output::kSums], ups[Output::kSums];
    parts.read(slab_sums, turn, 0);
    if constexpr (Shape::kPairs == Pairs::halves) parts.read(ups, turn, 1);
    output.store(slab_sums, Config::kSwapped ? slab_sums + Shape::kPartner : ups, m, slab, at);
  }
  output.finish();
}

// Computes one part of K of a tile, whose parts meet in global memory, then a part of the output.
template <class Config, class Epilogue>
__device__ __forceinline__ void compute_part(const GemmSm90Params<TensorMap>& params, int group,
                                             const ClusterPlace<Config>& place) {
  using Shape = Sm90Shape<Config>;
  using Output = TileStore<Config, Epilogue>;
  constexpr int kSlabs = Shape::kTilesM * Output::Slab::kSlabs;  // of this group
  const TilePosition at = TileSchedule<Config>(params.gemm, place).tile();
  const KTiles k_tiles = k_tiles_of(place, params.gemm, Shape::kBlockK);
  auto position = Shape::StageRing::consumer();
  Output output(params, group, group * Shape::kTilesM * Shape::kOutputRows);
  output.begin(at);
  MemorySum<Config> parts(params.gemm, place, group);
  parts.look();
  float sums[Shape::kTilesM][Shape::kRegisters];
  sum_products<Config>(position, k_tiles.end - k_tiles.begin, group, sums);
  parts.open();
#pragma unroll
  for (int m = 0; m < Shape::kTilesM; ++m) parts.write(sums[m], m);
  sync_threads<Config::kGroups * 128>(15);  // all groups are done with the stages
  output.prepare(position);
  // Slab `i` of all the tile's is added up by part i % parts.
  const u32 slabs_before = group * kSlabs;
  const auto adder_of = [&](int slab) { return (slabs_before + slab) % place.parts; };
  const u32 memory = Shape::base() + group * 16;
  if (threadIdx.x % 128 == 0) {
    bool has_slabs = false;
#pragma unroll
    for (int i = 0; i < kSlabs; ++i) has_slabs |= adder_of(i) == place.part;
    store_shared_4(memory, __uint_as_float(parts.arrive(has_slabs)));
  }
  sync_threads<128>(1 + group);
  const u32 adds = __float_as_uint(load_shared<float>(memory));
  const auto next = [&](int slab) {
    while (slab < kSlabs && (adds >> adder_of(slab) & 1) == 0) ++slab;
    return slab;
  };
  constexpr int kTiles = Output::kSums / 4;
#pragma unroll 1
  for (int first = next(0); first < kSlabs;) {
    const int second = next(first + 1);
    const int first_m = first / Output::Slab::kSlabs, first_slab = first % Output::Slab::kSlabs;
    const int second_m = second / Output::Slab::kSlabs, second_slab = second % Output::Slab::kSlabs;
    float both[2][Output::kSums], ups[2][Output::kSums];
    parts.template read<kTiles>(both, first_m, first_slab * kTiles, second < kSlabs, second_m,
                                second_slab * kTiles);
    if constexpr (Shape::kPairs == Pairs::halves) {
      constexpr int kHalf = Config::kBlockN / 16;
      parts.template read<kTiles>(ups, first_m, kHalf + first_slab * kTiles, second < kSlabs,
                                  second_m, kHalf + second_slab * kTiles);
    }
    const auto store = [&](int i, int m, int slab) {
      output.store(both[i], Config::kSwapped ? both[i] + Shape::kPartner : ups[i], m, slab, at);
    };
    store(0, first_m, first_slab);
    if (second < kSlabs) store(1, second_m, second_slab);
    first = next(second + 1);
  }
  if (threadIdx.x % 128 == 0) parts.end();
  output.finish();
}

template <class Config>
__device__ __forceinline__ void prefetch_maps(const GemmSm90Params<TensorMap>& params) {
  prefetch_map(params.rows);
  prefetch_map(params.columns);
  if (params.gemm.raster.row_tail.begin >= 0) prefetch_map(params.row_tail);
  if (params.gemm.raster.column_tail.begin >= 0) prefetch_map(params.column_tail);
  if constexpr (Config::kResidualBoxes) prefetch_map(params.residual);
  if constexpr (Config::kStores != Access::elements) prefetch_map(params.out);
}

template <class Config, class Epilogue>
__device__ __forceinline__ void gemm_sm90(const GemmSm90Params<TensorMap>& params) {
  using Shape = Sm90Shape<Config>;
  // The shuffle makes `warp` warp-uniform to the compiler, which cannot infer it from the index.
  const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int group = static_cast<int>(warp / 4);
  const auto place = ClusterPlace<Config>::here(params.gemm);
  constexpr u32 kReady = 14;                             // the ring's barriers are initialised
  constexpr bool kAllWait = Shape::kScaleThreads == 96;  // no warp of the producer's is idle
  // The barriers of the sums are known to be initialised before another CTA arrives at one.
  constexpr bool kMeets = Shape::kSumsInCluster && Config::kCluster == 1;
  // Three or four warpgroups share 64K registers.
  constexpr bool kMovesRegisters = Config::kGroups > 1 && Config::kResidents == 1;
  constexpr int kProducerRegisters = Config::kGroups == 2 ? 40 : 32;
  constexpr int kMathRegisters = Config::kGroups == 2 ? 232 : 160;
  if (group == Config::kGroups) {
    const bool is_producer = warp == Config::kGroups * 4;
    const u32 thread = threadIdx.x % 128;
    const bool loads_scales = thread >= 32 && thread < 32 + Shape::kScaleThreads;
    // Two other warps prepare what the first copies need, while the producer finds its first tile.
    // Elected lanes, as barriers and copies by one of several lanes are issued in a loop over them.
    if (warp % 4 == 1 && elect_lane()) {
      Shape::ring().init(Shape::kTileGroups * 4 * Config::kCluster, Shape::kProducerArrivals);
      if constexpr (Shape::kSumsInCluster) PartsOf<Config, Epilogue>::init(place);
      fence_barrier_init();
    }
    if (warp % 4 == 3 && elect_lane()) prefetch_maps<Config>(params);
    TilePosition first{};
    if (is_producer && !kGrouped<Config>) {
      first = TileSchedule<Config>(params.gemm, place).tile();
      // opaque() keeps this ahead of the barrier.
      first.row = static_cast<int>(opaque(first.row));
      first.column = static_cast<int>(opaque(first.column));
    }
    __syncwarp();
    if constexpr (kMeets) arrive_at_cluster();
    if constexpr (Config::kCluster > 1) {
      sync_cluster();
    } else if (kAllWait || is_producer || loads_scales) {
      sync_threads<Shape::kThreads>(kReady);
    } else {
      arrive_threads<Shape::kThreads>(kReady);
    }
    if constexpr (kMovesRegisters) give_registers<kProducerRegisters>();
    if (is_producer) {
      // Rows in groups are searched for by the whole warp.
      if (kGrouped<Config> || elect_lane()) load_tiles<Config>(params, place, first);
    }
    if constexpr (kBlockScaled<Config>) {
      if (loads_scales) {
        wait_for_launches();
        ScaleLoader<Config>(params.gemm).load_tiles(place);
      }
    }
    __syncwarp();
    if constexpr (Shape::kSumsInCluster) {
      if constexpr (Config::kCluster == 1) wait_for_cluster();
      if (is_producer && elect_lane()) PartsOf<Config, Epilogue>(params.gemm, place).give_memory();
      __syncwarp();
      arrive_at_cluster();
    }
  } else {
    if constexpr (Config::kCluster > 1) {
      sync_cluster();
    } else {
      sync_threads<Shape::kThreads>(kReady);
    }
    if constexpr (kMovesRegisters) take_registers<kMathRegisters>();
    if constexpr (!kGrouped<Config>) clear_outside<Config>(params.gemm, place);
    // Behind what was cleared, since others write sums to stages that no copy may have filled.
    if constexpr (kMeets) arrive_at_cluster();
    wait_for_launches();  // biases, scales and residuals are read, and the output is written
    if constexpr (Config::kApart) {
      compute_part<Config, Epilogue>(params, group, place);
    } else if constexpr (Config::kSplits) {
      compute_shared_tile<Config, Epilogue>(params, group, place);
    } else if constexpr (starts_ahead<Config, Epilogue>()) {
      compute_tiles_ahead<Config, Epilogue>(params, group, place);
    } else {
      compute_tiles<Config, Epilogue>(params, group, place);
    }
  }
  // A CTA must not end while others may still copy into its memory or arrive at its barriers, nor
  // before its sums have reached them: math groups have arrived here when they had all of theirs.
  if constexpr (Shape::kSumsInCluster) {
    wait_for_cluster();
  } else if constexpr (Config::kCluster > 1) {
    sync_cluster();
  }
}

}  // namespace kiln
