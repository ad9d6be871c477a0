// The statistics of a row, gathered from its parts. The order of summation depends only on the
// columns, so a row gives the same bits in any batch and in every launch.
#pragma once
#include "/kiln/base/lanes.cuh"
#include "/kiln/base/math.cuh"

namespace kiln {

enum class Norm { rms, layer };

// y = (s - mean) * scale.
struct Normalizer {
  float mean, scale;
};

// The statistics of a row or of a part of it: the number of columns, their mean, and the sum of
// squared distances from it. RMS norm has no mean and keeps it 0. A difference of two large sums
// would lose the variance of rows with a large mean; sums of distances from a known mean do not.
struct Statistics {
  float count = 0.0f, mean = 0.0f, squares = 0.0f;

  __device__ __forceinline__ Normalizer normalizer(float eps) const {
    return {mean, rsqrtf(squares * reciprocal_approx(count) + eps)};
  }
  __device__ __forceinline__ float4 to_quad() const { return {count, mean, squares, 0.0f}; }
  __device__ __forceinline__ static Statistics from_quad(const float4& quad) {
    return {quad.x, quad.y, quad.z};
  }
};

// Returns sum / count, or 0 for no elements. The second step adds what rounding left, so that the
// mean of equal elements is that element.
__device__ __forceinline__ float mean_of(float sum, float count) {
  const float share = reciprocal_approx(fmaxf(count, 1.0f));
  const float mean = sum * share;
  return mean + fmaf(-mean, count, sum) * share;
}

// Joins the parts of a row, `part(0)` to `part(count - 1)`; called by whole warps. kMost is 8 for
// at most 8 parts, or 32 for any number.
template <Norm kNorm, int kMost, class Part>
__device__ __forceinline__ Statistics join_parts(int count, float columns, Part part) {
  const int lane = threadIdx.x % kMost;
  float mean = 0.0f, squares = 0.0f;
  if constexpr (kNorm == Norm::layer) {
    // Averages distances from one of the means: they are smaller and lose less to rounding.
    const float origin = part(0).mean;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = lane; i < count; i += kMost) {
      const Statistics one = part(i);
      sum += (one.mean - origin) * one.count;
    }
    mean = origin + mean_of(sum_lanes<kMost>(sum), columns);
  }
#pragma unroll 1
  for (int i = lane; i < count; i += kMost) {
    const Statistics one = part(i);
    const float distance = one.mean - mean;
    squares += one.squares + one.count * distance * distance;
  }
  return {columns, mean, sum_lanes<kMost>(squares)};
}

}  // namespace kiln
