// Computes the products of one output tile: a math warpgroup steps through the ring of stages.
#pragma once
#include "/kiln/gemm/sm90/tile.cuh"
#include "/kiln/sm90/old_compilers.cuh"
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

// Each warp arrives on its own because the group's warps do not run in step.
template <class Config>
__device__ __forceinline__ void release_stage(u32 empty) {
  const u32 lane = threadIdx.x % 32;
  if constexpr (Config::kCluster == 1) {
    if (lane == 0) arrive(empty);
  } else {
    // A cluster's CTAs that share columns are neighbours.
    const u32 first = Config::kSplits ? cluster_rank() / Config::kCluster * Config::kCluster : 0;
    if (lane < Config::kCluster) arrive_at(empty, first + lane);
  }
}

template <class Config>
__device__ __forceinline__ void clear(
    float (&sums)[Sm90Shape<Config>::kTilesM][Sm90Shape<Config>::kRegisters]) {
#pragma unroll
  for (int m = 0; m < Sm90Shape<Config>::kTilesM; ++m) {
#pragma unroll
    for (int i = 0; i < Sm90Shape<Config>::kRegisters; ++i) sums[m][i] = 0.0f;
  }
}

// Computes accumulators = rows times columns of `k_tiles` stages from `position` on; `group` is the
// warpgroup's index among those that share the tile. A stage is released one step late so that the
// tensor cores always have the next products at hand. There is at least one K-tile.
template <class Config>
__device__ __forceinline__ void multiply_tile(
    typename Sm90Shape<Config>::StageRing::Position& position, int k_tiles, int group,
    float (&accumulators)[Sm90Shape<Config>::kTilesM][Sm90Shape<Config>::kRegisters]) {
  using Shape = Sm90Shape<Config>;
  const auto ring = Shape::ring();
  if constexpr (kAccumulatorsNeedValues) clear<Config>(accumulators);
  u32 previous = 0;
  // The first round is not asked for: a path without products would leave them without a value.
#pragma unroll 1
  for (int i = 0; (kAccumulatorsNeedValues && i == 0) || i < k_tiles; ++i) {
    wait(ring.full(position.stage), position.parity);
    const u64 columns =
        operand_descriptor(Shape::columns(position.stage), Shape::Columns::kBlockBytes);
    begin_products();
#pragma unroll
    for (int m = 0; m < Shape::kTilesM; ++m) {
      const u32 first = (group * Shape::kTilesM + m) * Shape::Rows::kBlockBytes;
      const u64 rows =
          operand_descriptor(Shape::rows(position.stage) + first, Shape::Rows::kBlockBytes);
      Config::Products::multiply(accumulators[m], rows, columns, i);
    }
    commit_products();
    wait_products<1>();
    if (i > 0) release_stage<Config>(previous);
    previous = ring.empty(position.stage);
    position.advance();
  }
#pragma unroll
  for (int m = 0; m < Shape::kTilesM; ++m) Config::Products::finish(accumulators[m]);
  release_stage<Config>(previous);
}

}  // namespace kiln
