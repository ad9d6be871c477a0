// Combines the statistics of a row over the threads that share it: in a CTA by sums, in a cluster
// (sm_90 and later) by joining the results of its CTAs.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/norm/lane.cuh"
#include "/kiln/sm90/send.cuh"
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

// Returns the CTA's rank among the CTAs that share a row.
template <class Config>
__device__ __forceinline__ u32 rank_of_row() {
  if constexpr (Config::kCluster > 1) return cluster_rank();
  return 0;
}

// A CTA's shared memory may be written only while that CTA runs, so the CTAs of a cluster call this
// before the first row.
template <class Config>
__device__ __forceinline__ void begin_exchange() {
  if constexpr (Config::kCluster > 1) sync_cluster();
}

// Returns how many columns of a row the CTA of this rank holds.
template <class Config>
__device__ __forceinline__ float columns_of_rank(u32 columns, u32 rank) {
  constexpr u32 kTurn = Config::kVector * Config::kThreadsPerRow, kCluster = Config::kCluster;
  if constexpr (kCluster == 1) return static_cast<float>(columns);
  const u32 turns = columns / kTurn, rest = columns % kTurn, last = turns % kCluster;
  const u32 own = turns / kCluster * kTurn + (rank < last ? kTurn : rank == last ? rest : 0);
  return static_cast<float>(own);
}

// Returns the sum, or two sums, over the threads of a CTA that share a row. All threads call it,
// with `set` alternating between 0 and 1. One barrier per sum is then enough: a set is written
// again only after all threads have read it and reached the barrier of the other set.
template <class Config, class T>
__device__ __forceinline__ T sum_threads(T sum, u32 set) {
  using Shape = NormShape<Config>;
  sum = sum_lanes<Shape::kLanes>(sum);
  if constexpr (Shape::kWarps > 1) {
    constexpr int kSlots = Shape::kWarps > 16  ? 32
                           : Shape::kWarps > 8 ? 16
                           : Shape::kWarps > 4 ? 8
                           : Shape::kWarps > 2 ? 4
                                               : 2;
    __shared__ T slots[2][Config::kRowsPerBlock][kSlots];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    T* const of_row = slots[set][warp / Shape::kWarps];
    if (lane == 0) of_row[warp % Shape::kWarps] = sum;
    __syncthreads();
    const int slot = lane % kSlots;
    sum = sum_lanes<kSlots>(slot < Shape::kWarps ? of_row[slot] : T{});
  }
  return sum;
}

// Returns the statistics of the `count` columns of a row that a CTA holds; `turn` counts its rows.
template <class Config>
__device__ __forceinline__ Statistics gather(const NormLane<Config>& lane,
                                             const RowValues<Config>& values, float count,
                                             u32 turn) {
  if constexpr (Config::kNorm == Norm::rms) {
    return {count, 0.0f, sum_threads<Config>(lane.distances(values, 0.0f).x, turn % 2)};
  } else {
    const float mean = mean_of(sum_threads<Config>(lane.sum(values), 0), count);
    const float2 sums = lane.distances(values, mean);
    if constexpr (!NormLane<Config>::kFine) return {count, mean, sum_threads<Config>(sums.x, 1)};
    // `rest` is what rounding took from the mean.
    const float2 all = sum_threads<Config>(sums, 1);
    const float rest = mean_of(all.y, count);
    return {count, mean + rest, all.x - rest * all.y};
  }
}

// Joins what each CTA of the cluster gathered of a row. Two sets of slots alternate, as above.
template <class Config>
__device__ __forceinline__ Statistics exchange(const Statistics& own, float columns, u32 rank,
                                               u32 turn) {
  if constexpr (Config::kCluster == 1) return own;
  __shared__ float4 slots[2][Config::kCluster];
  float4* const of_row = slots[turn % 2];
  if (threadIdx.x < Config::kCluster) {
    store_shared_of(threadIdx.x, shared_address(of_row + rank), own.to_quad());
  }
  sync_cluster();
  return join_parts<Config::kNorm, 8>(Config::kCluster, columns,
                                      [&](int i) { return Statistics::from_quad(of_row[i]); });
}

}  // namespace kiln
