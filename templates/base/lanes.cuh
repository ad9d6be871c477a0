// Sums and maxima over lanes of a warp.
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

// Returns the maximum over kLanes neighbouring lanes, a power of two. NaN counts for nothing.
template <int kLanes>
__device__ __forceinline__ float max_lanes(float most) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
  }
  return most;
}

// Sums over the warp's lanes from the first up to the calling one.
template <class T>
__device__ __forceinline__ T sum_up_to_lane(T sum) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T below = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += below;
  }
  return sum;
}

}  // namespace kiln
