// Sums over neighbouring lanes of a warp.
#pragma once

namespace kiln {

// Sums over kLanes neighbouring lanes, a power of two. All lanes get the same bits.
template <int kLanes>
__device__ __forceinline__ float sum_lanes(float sum) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
  return sum;
}

template <int kLanes>
__device__ __forceinline__ float2 sum_lanes(float2 sums) {
  return {sum_lanes<kLanes>(sums.x), sum_lanes<kLanes>(sums.y)};
}

}  // namespace kiln
