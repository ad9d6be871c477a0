// Experts that a warp chooses among, and their order: the larger choice comes first, then the
// smaller number.
#pragma once
#include "/kiln/base/lanes.cuh"
#include "/kiln/base/types.cuh"
#include "/kiln/moe_route/params.h"

namespace kiln {

// Numbers in the order of what they are made of: NaN is the largest, and none is 0.
__device__ __forceinline__ u32 order_of(float x) {
  const u32 bits = __float_as_uint(x + 0.0f);  // the zeros are one
  const u32 order = bits ^ (static_cast<u32>(static_cast<int>(bits) >> 31) | 0x80000000u);
  return x == x ? order : 0xffffffffu;
}
__device__ __forceinline__ float of_order(u32 order) {
  return __uint_as_float(order >> 31 != 0 ? order & 0x7fffffffu : ~order);
}

struct Candidate {
  u32 order;   // of its choice; 0: not to be chosen
  u32 behind;  // the complement of its number

  __device__ __forceinline__ bool precedes(const Candidate& other) const {
    const auto key = [](const Candidate& one) { return u64{one.order} << 32 | one.behind; };
    return key(*this) > key(other);
  }
};

// The largest of the warp's numbers, and the least index that has it. A 0 is no candidate.
struct Winner {
  u32 order, index;

  __device__ __forceinline__ Winner(u32 order_of_lane, u32 index_of_lane) {
    order = __reduce_max_sync(~0u, order_of_lane);
    index = __reduce_min_sync(~0u, order_of_lane == order ? index_of_lane : ~0u);
  }
};

// The experts of a lane, kEach of them.
template <int kEach>
struct Candidates {
  static_assert((kEach & (kEach - 1)) == 0, "moe_route: a lane sorts a power of two of experts");
  Candidate of_lane[kEach];

  // Excludes the experts of groups whose bit is not set. Requires: of_lane is as it was loaded.
  __device__ __forceinline__ void keep(u32 groups, int group_size) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int group = (i * 32 + static_cast<int>(threadIdx.x % 32)) / group_size;
      if (group >= 32 || (groups >> group & 1) == 0) of_lane[i].order = 0;
    }
  }

  // Puts the lane's candidates in order, by a bitonic network.
  __device__ __forceinline__ void sort() {
#pragma unroll
    for (int size = 2; size <= kEach; size *= 2) {
#pragma unroll
      for (int apart = size / 2; apart > 0; apart /= 2) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          if ((i & apart) != 0) continue;
          Candidate &one = of_lane[i], &other = of_lane[i + apart];
          const bool swaps = (i & size) == 0 ? other.precedes(one) : one.precedes(other);
          const Candidate first = swaps ? other : one;
          other = swaps ? one : other;
          one = first;
        }
      }
    }
  }
  // Takes the best expert of the warp. Requires: sort() was called.
  __device__ __forceinline__ u32 take() {
    const u32 own = ~of_lane[0].behind;
    const Winner winner(of_lane[0].order, own);
    if (winner.index == own) {
#pragma unroll
      for (int i = 1; i < kEach; ++i) of_lane[i - 1] = of_lane[i];
      of_lane[kEach - 1].order = 0;
    }
    return winner.index;
  }
};

// From so many experts of a lane on, best_of_few() takes less time than sorting them.
constexpr int kLongLane = 8;

// Sets `expert` to the k-th best expert, from the best on, in lane k < top_k. Only those that reach
// the top_k-th of the lanes' best ones are compared with each other. Returns false, in all lanes,
// if these are more than 32, as equal choices may be.
template <int kEach>
__device__ __forceinline__ bool best_of_few(const Candidates<kEach>& candidates, int top_k,
                                            u32& expert) {
  __shared__ Candidate few_of_warps[kRouteThreads / 32][32];
  __shared__ u32 best_of_warps[kRouteThreads / 32][32];
  Candidate* const few = few_of_warps[threadIdx.x / 32];
  u32* const best_experts = best_of_warps[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  u32 best = 0;
#pragma unroll
  for (const Candidate& one : candidates.of_lane) best = max(best, one.order);
  u32 least = 0;
  for (int k = 0; k < top_k; ++k) {
    least = __reduce_max_sync(~0u, best);
    if (best == least) best = 0;
  }
  least = max(least, 1u);  // lanes without candidates have a 0
  int count = 0;
#pragma unroll
  for (const Candidate& one : candidates.of_lane) count += one.order >= least ? 1 : 0;
  const int end = sum_up_to_lane(count);
  const int total = __shfl_sync(~0u, end, 31);
  if (total > 32) return false;
  int at = end - count;
#pragma unroll
  for (const Candidate& one : candidates.of_lane) {
    if (one.order >= least) few[at++] = one;
  }
  if (lane >= total) few[lane] = {0, 0};
  __syncwarp();
  const Candidate own = few[lane];
  int better = 0;
  for (int first = 0; first < total; first += 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) better += few[first + i].precedes(own) ? 1 : 0;
  }
  if (lane < total && better < top_k) best_experts[better] = ~own.behind;
  __syncwarp();
  if (lane < top_k) expert = best_experts[lane];
  return true;
}

}  // namespace kiln
