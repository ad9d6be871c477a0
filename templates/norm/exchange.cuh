// The statistics of a row from those of the threads that share it: in a CTA by sums, in a cluster
// (sm_90 and later) by joining what its CTAs found.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/norm/lane.cuh"
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

// Into the same place of the shared memory of a CTA of the cluster, the own one included.
__device__ __forceinline__ void store_shared_of(u32 cta, u32 address, const float4& quad) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n"
      "}" ::"r"(address),
      "r"(cta), "f"(quad.x), "f"(quad.y), "f"(quad.z), "f"(quad.w)
      : "memory");
}

// The CTA's place among those that share a row.
template <class Config>
__device__ __forceinline__ u32 rank_of_row() {
  if constexpr (Config::kCluster > 1) return cluster_rank();
  return 0;
}

// A CTA's shared memory may be written only while it runs: CTAs of a cluster call this before the
// first row.
template <class Config>
__device__ __forceinline__ void begin_exchange() {
  if constexpr (Config::kCluster > 1) sync_cluster();
}

// The columns of a row that the CTA of this rank holds.
template <class Config>
__device__ __forceinline__ float columns_of_rank(u32 columns, u32 rank) {
  constexpr u32 kTurn = Config::kVector * Config::kThreadsPerRow, kCluster = Config::kCluster;
  if constexpr (kCluster == 1) return static_cast<float>(columns);
  const u32 turns = columns / kTurn, rest = columns % kTurn, last = turns % kCluster;
  const u32 own = turns / kCluster * kTurn + (rank < last ? kTurn : rank == last ? rest : 0);
  return static_cast<float>(own);
}

// The sum, or two, over the threads of a CTA that share a row; called by all, with `set` 0 and 1 in
// turns: one barrier for each sum is enough, as nobody writes a set again before all have come
// to the barrier of the other one, behind their reads of it.
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

// Of the part of a row that a CTA holds, `count` columns; `turn` counts its rows.
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
    // What rounding took from the mean.
    const float2 all = sum_threads<Config>(sums, 1);
    const float rest = mean_of(all.y, count);
    return {count, mean + rest, all.x - rest * all.y};
  }
}

// Of a whole row, from what each CTA of the cluster gathered. Two sets of slots in turns, as above.
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
