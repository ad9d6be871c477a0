// Quantises activations with one scale for each group of columns of a row, or for each row: x is
// read once, and the results are written once.
// A rendered kernel calls quantize_groups<Config>(params) with a Config of
//   Input, Output    the dtypes of x and of out, which is quantised
//   kGate            Activation::none; else x has gates, which it is applied to, before the values
//                    that they multiply
//   kPowerOfTwo      whether scales are rounded up to powers of two
//   kByteScales      only where scales are UE8M0 (base/byte_scales.cuh): true; needs kPowerOfTwo
//   kCounts          whether runs of rows have counts, beyond which nothing is read or written
//   kVector          elements of an access; it divides the columns and the group. Tensors begin,
//                    and their rows follow each other, at multiples of kVector of their own
//                    elements or of 16 bytes, whichever is less
//   kLanes           threads that share a group: a power of two up to 32, or a multiple of 32
//   kCluster         CTAs that share a group, with kLanes threads each; more than 1 from sm_90 on,
//                    without kTurns
//   kVectors         accesses of a thread that are in registers at a time
//   kTurns           whether a group may have more than kLanes * kVectors accesses, which are then
//                    taken in turns
//   kKeeps           only with kTurns, accesses of 4 bytes or more, and one group for each CTA:
//                    whether shared memory has room for a group. Else x is read twice
//   kHardware        whether the arch converts to 8-bit floats by an instruction
// The launch has quantize_blocks() CTAs of quantize_threads() threads, in clusters, and, with
// kKeeps, quantize_kept_bytes() of dynamic shared memory.
#pragma once
#include "/kiln/base/lanes.cuh"
#include "/kiln/quantize/group.cuh"
#include "/kiln/quantize/kept.cuh"
#include "/kiln/sm90/send.cuh"
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

// Returns the maximum over the threads that share a group. All threads of the CTA call it once.
template <class Config>
__device__ __forceinline__ float most_of_lanes(float most) {
  using Shape = QuantizeShape<Config>;
  most = max_lanes<Shape::kIsWarp ? Shape::kLanes : 32>(most);
  if constexpr (!Shape::kIsWarp) {
    __shared__ float of_warps[Shape::kLanes / 32];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (float one : of_warps) most = fmaxf(most, one);
  }
  return most;
}

// Returns the maximum over the CTAs that share a group. All threads of the cluster have arrived
// there before, and call it once.
template <class Config>
__device__ __forceinline__ float most_of_cluster(float most, u32 rank) {
  constexpr int kCluster = QuantizeShape<Config>::kCluster;
  if constexpr (kCluster > 1) {
    __shared__ float of_ctas[kCluster];
    wait_for_cluster();  // a CTA's shared memory may be written only while that CTA runs
    if (threadIdx.x < kCluster) {
      store_shared_of(threadIdx.x, shared_address(of_ctas + rank), most);
    }
    sync_cluster();
#pragma unroll
    for (float one : of_ctas) most = fmaxf(most, one);
  }
  return most;
}

template <class Config>
__device__ __forceinline__ float scale_of(float most) {
  using Output = typename Config::Output;
  constexpr float kLargest = is_same<Output, f8_e4m3>   ? 448.0f
                             : is_same<Output, f8_e5m2> ? 57344.0f
                                                        : 127.0f;
  const float highest = fmaxf(most, kQuantizeFloor);
  const float scale = highest < KILN_INFINITY ? GroupDivisor(kLargest).divide(highest) : highest;
  if constexpr (!Config::kPowerOfTwo) return scale;
  constexpr u32 kFraction = 0x7fffffu;
  const u32 bits = __float_as_uint(scale);
  return __uint_as_float((bits + kFraction) & ~kFraction);  // leaves powers of two and infinity
}

template <class Config>
__device__ __forceinline__ void quantize_groups(const QuantizeParams& p) {
  using Shape = QuantizeShape<Config>;
  constexpr bool kShares = Shape::kCluster > 1;
  u32 rank = 0;
  if constexpr (kShares) {
    rank = cluster_rank();
    arrive_at_cluster();
  }
  const int lane = rank * Shape::kLanes + threadIdx.x % Shape::kLanes;
  const u32 number = blockIdx.x / Shape::kCluster * Shape::kTeams + threadIdx.x / Shape::kLanes;
  const ColumnGroup<Config> at = group_at<Config>(p, number, lane);
  const auto for_each_turn = [&](const auto& use) {
    if constexpr (Config::kTurns) {
      for (int start = 0; start < at.columns; start += Shape::kTurn) use(start);
    } else {
      use(0);
    }
  };
  GroupValues<Config> values;
  float most = 0.0f;
  if constexpr (Config::kKeeps) KeptGroup<Config>::fetch(at, p.columns);
  for_each_turn([&](int start) {
    if constexpr (Config::kKeeps) {
      KeptGroup<Config>::take(at, start, values);
    } else {
      values.load(at, start, p.columns);
    }
    most = values.most(most);
  });
  most = most_of_cluster<Config>(most_of_lanes<Config>(most), rank);
  const float scale = scale_of<Config>(most);
  const GroupDivisor divisor(scale);
  if (at.exists && lane == 0) {
    if constexpr (kByteScales<Config>) {
      *at.scale = scale_of_float(scale);
    } else {
      *at.scale = scale;
    }
  }
  for_each_turn([&](int start) {
    if constexpr (Config::kKeeps) {
      KeptGroup<Config>::take_again(at, start, values);
    } else if constexpr (Config::kTurns) {
      values.load(at, start, p.columns);
    }
    values.store(at, start, divisor);
  });
}

}  // namespace kiln
