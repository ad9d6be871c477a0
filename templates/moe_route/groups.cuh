// The best groups of a token's experts.
#pragma once
#include "/kiln/moe_route/candidates.cuh"

namespace kiln {

// The best groups, as bits. A group's score is its best choice or, with a bias, the sum of its two
// best. As many lanes as there are for each group, a power of two, read its experts.
template <bool kBias, int kEach>
__device__ __forceinline__ u32 best_groups(const RouteParams& p,
                                           const Candidates<kEach>& candidates) {
  __shared__ u32 of_warps[kRouteThreads / 32][kEach * 32];
  u32* const orders = of_warps[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kEach; ++i) orders[i * 32 + lane] = candidates.of_lane[i].order;
  __syncwarp();
  const int size = p.experts / p.groups;
  const int lanes = 1 << (31 - __clz(min(32 / p.groups, size)));
  const int group = lane / lanes, part = lane % lanes;
  u32 best = 0, second = 0;
  if (group < p.groups) {
    // Groups are read from different experts on, which use different banks.
    int at = lane % size;
#pragma unroll 4
    for (int i = part; i < size; i += lanes) {
      const u32 one = orders[group * size + at];
      second = max(second, min(best, one));
      best = max(best, one);
      at += lanes;
      if (at >= size) at -= size;
    }
  }
  for (int apart = 1; apart < lanes; apart *= 2) {
    const u32 one = __shfl_xor_sync(~0u, best, apart);
    second = max(max(second, __shfl_xor_sync(~0u, second, apart)), min(best, one));
    best = max(best, one);
  }
  u32 order = 0;
  if (group < p.groups && part == 0) {
    order = kBias && size > 1 ? order_of(of_order(best) + of_order(second)) : best;
  }
  u32 chosen = 0;
  for (int i = 0; i < p.top_groups; ++i) {
    const Winner winner(order, group);
    chosen |= 1u << winner.index;
    if (winner.index == static_cast<u32>(group)) order = 0;
  }
  return chosen;
}

}  // namespace kiln
