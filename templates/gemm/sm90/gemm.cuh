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
// The producer runs ahead into the next tile while the math groups write the last one.
#pragma once
#include "/kiln/gemm/sm90/load.cuh"
#include "/kiln/gemm/sm90/main_loop.cuh"
#include "/kiln/gemm/sm90/store.cuh"

namespace kiln {

// Two math groups take turns on the tensor cores: one multiplies its tile while the other writes
// its own. Slot g is group g's turn. Results depend on it: a group that waited for its next tile
// while the other still multiplies could take an earlier round of a stage for its own (ring.cuh).
__device__ __forceinline__ void wait_for_turn(int group) { sync_threads<256>(8 + group); }
__device__ __forceinline__ void give_turn(int group) { arrive_threads<256>(8 + group); }

template <class Config, class Epilogue>
__device__ __forceinline__ void compute_tiles(const GemmSm90Params<TensorMap>& params, int group,
                                              u32 cta_rank) {
  using Shape = Sm90Shape<Config>;
  constexpr bool kPingPong = Config::kPingPong;
  const int k_tiles = ceil_div(params.gemm.k, Shape::kBlockK);
  auto position = Shape::StageRing::consumer();
  TileSchedule<Config> schedule(params.gemm, cta_rank);
  TileStore<Config, Epilogue> output(params, group);
  const auto skip_tile = [&] {
    position.advance_by(k_tiles);
    schedule.advance();
  };
  if constexpr (kPingPong) {
    if (group == 1) {
      give_turn(0);
      skip_tile();
    }
  }
#pragma unroll 1
  while (schedule.has_tile()) {
    float accumulators[Shape::kTilesM][Config::Products::kRegisters];
    if constexpr (kPingPong) wait_for_turn(group);
    multiply_tile<Config>(position, k_tiles, kPingPong ? 0 : group, accumulators);
    if constexpr (kPingPong) give_turn(group ^ 1);
    const TilePosition at = schedule.tile();
    const int first = kPingPong ? 0 : group * Shape::kTilesM;
#pragma unroll
    for (int m = 0; m < Shape::kTilesM; ++m) {
      output.store(accumulators[m], at.row + (first + m) * 64, at.column, at.batch);
    }
    schedule.advance();
    if constexpr (kPingPong) skip_tile();
  }
  output.finish();
}

template <class Config, class Epilogue>
__device__ __forceinline__ void gemm_sm90(const GemmSm90Params<TensorMap>& params) {
  using Shape = Sm90Shape<Config>;
  // Warp-uniform, which the compiler cannot know of a thread's index.
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const u32 cta_rank = Config::kCluster == 1 ? 0 : cluster_rank();
  if (threadIdx.x == 0) {
    Shape::ring().init(Shape::kTileGroups * 4 * Config::kCluster);
    fence_barrier_init();
  }
  if constexpr (Config::kCluster == 1) {
    __syncthreads();
  } else {
    sync_cluster();
  }
  if (group == Config::kGroups) {
    if constexpr (Config::kGroups > 1) give_registers<40>();
    if (threadIdx.x == Config::kGroups * 128) {
      prefetch_map(params.rows);
      prefetch_map(params.columns);
      load_tiles<Config>(params, cta_rank);
    }
    __syncwarp();
  } else {
    if constexpr (Config::kGroups > 1) take_registers<232>();
    compute_tiles<Config, Epilogue>(params, group, cta_rank);
  }
  // A CTA must not end while others may still copy into its memory or arrive at its barriers.
  if constexpr (Config::kCluster > 1) sync_cluster();
}

}  // namespace kiln
