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
//   and
//                    their rows follow each other, at multiples of kVector of their own elements or
//                    of 16 bytes, whichever is less
//   kLanes           threads that share a group: a power of two up to 32, or a multiple of 32
//   kVectors         accesses of a thread that are in registers at a time
//   kTurns           whether a group may have more than kLanes * kVectors accesses; it is then read
//                    twice
//   kHardware        whether the arch converts to 8-bit floats by an instruction
// The launch has quantize_blocks() CTAs of quantize_threads() threads.
#pragma once
#include "/kiln/base/activation.cuh"
#include "/kiln/base/byte_scales.cuh"
#include "/kiln/base/quantize.cuh"
#include "/kiln/quantize/params.h"

namespace kiln {

template <class Config>
struct QuantizeShape {
  static constexpr int kLanes = Config::kLanes;
  static constexpr int kThreads = quantize_threads(kLanes);
  static constexpr int kTeams = kThreads / kLanes;        // that have groups of their own
  static constexpr int kStep = kLanes * Config::kVector;  // between a thread's accesses
  static constexpr int kTurn = kStep * Config::kVectors;  // columns of a group at a time
  static constexpr bool kIsWarp = kLanes <= 32;

  static_assert(is_quantized<typename Config::Output>,
                "quantize: Output must be an 8-bit float or int8");
  static_assert(
      kIsWarp ? kLanes >= 1 && (kLanes & (kLanes - 1)) == 0
              : kLanes % 32 == 0 && kLanes <= 1024 && kThreads == kLanes,
      "quantize: kLanes must be a power of two up to 32, or a multiple of 32 from 256 on");
  static_assert(Config::kVector >= 1 && Config::kVector <= 8 &&
                    (Config::kVector & (Config::kVector - 1)) == 0,
                "quantize: kVector must be a power of two up to 8");
  static_assert(!kByteScales<Config> || Config::kPowerOfTwo,
                "quantize: scales of bytes are rounded up to powers of two");
};

// Where one group of columns lies.
template <class Config>
struct ColumnGroup {
  using Scale = conditional<kByteScales<Config>, u8, float>;

  const typename Config::Input* from;  // the thread's first column
  u8* to;
  Scale* scale;
  int columns;  // from the thread's first one to the group's end; 0 or less: it has none
  bool exists;
};

template <class Config>
__device__ __forceinline__ ColumnGroup<Config> group_at(const QuantizeParams& p, u32 number,
                                                        int lane) {
  const u32 row = p.groups == 1 ? number : number / static_cast<u32>(p.groups);
  const int group = static_cast<int>(number - row * static_cast<u32>(p.groups));
  u32 outer = 0, inner = row;
  if (p.inner_rows != p.rows) {
    outer = row / static_cast<u32>(p.inner_rows);
    inner = row - outer * static_cast<u32>(p.inner_rows);
  }
  ColumnGroup<Config> at;
  at.exists = row < static_cast<u32>(p.rows);
  if constexpr (Config::kCounts) {
    at.exists = at.exists && static_cast<int>(inner) < __ldg(p.counts + outer * p.counts_stride);
  }
  const int first = group * p.group + lane * Config::kVector;
  const int end = min((group + 1) * p.group, p.columns);
  const auto place = [&](const QuantizeRows& rows) {
    return static_cast<i64>(outer) * rows.outer + static_cast<i64>(inner) * rows.inner;
  };
  at.columns = at.exists ? end - first : 0;
  at.from = static_cast<const typename Config::Input*>(p.x) + (place(p.x_rows) + first);
  at.to = static_cast<u8*>(p.out) + (place(p.out_rows) + first);
  using Scale = typename ColumnGroup<Config>::Scale;
  at.scale = static_cast<Scale*>(p.scale) + (place(p.scale_rows) + group * p.scale_groups);
  return at;
}

// The thread's columns of a group, from `start` columns after its first on, after the activation.
template <class Config>
struct GroupValues {
  using Part = Pack<typename Config::Input, Config::kVector>;
  static constexpr bool kGated = Config::kGate != Activation::none;

  float columns[Config::kVectors][Config::kVector];

  __device__ __forceinline__ void load(const ColumnGroup<Config>& at, int start,
                                       int gate_to_value) {
    Part parts[Config::kVectors], values[kGated ? Config::kVectors : 1];
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) {
      const int column = start + v * QuantizeShape<Config>::kStep;
      parts[v].load_once_from(at.from + column, column < at.columns);
      if constexpr (kGated) {
        values[v].load_once_from(at.from + gate_to_value + column, column < at.columns);
      }
    }
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < Config::kVector; ++i) {
        columns[v][i] = parts[v][i];
        if constexpr (kGated) columns[v][i] = activate<Config::kGate>(parts[v][i]) * values[v][i];
      }
    }
  }
  // Absent columns are zeros.
  __device__ __forceinline__ float most(float so_far) const {
#pragma unroll
    for (const auto& vector : columns) {
#pragma unroll
      for (float column : vector) so_far = fmaxf(so_far, fabsf(column));
    }
    return so_far;
  }
  __device__ __forceinline__ void store(const ColumnGroup<Config>& at, int start,
                                        const GroupDivisor& divisor) const {
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) {
      const int column = start + v * QuantizeShape<Config>::kStep;
      if (column < at.columns) {
        store_quantized<typename Config::Output, Config::kHardware, Config::kVector>(
            at.to + column, columns[v], divisor);
      }
    }
  }
};

// Returns the maximum over the threads that share a group. All threads of the CTA call it once.
template <class Config>
__device__ __forceinline__ float most_of_lanes(float most) {
  using Shape = QuantizeShape<Config>;
  constexpr int kWidth = Shape::kIsWarp ? Shape::kLanes : 32;
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
  }
  if constexpr (!Shape::kIsWarp) {
    __shared__ float of_warps[Shape::kLanes / 32];
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (float one : of_warps) most = fmaxf(most, one);
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
  const int lane = threadIdx.x % Shape::kLanes;
  const u32 number = blockIdx.x * Shape::kTeams + threadIdx.x / Shape::kLanes;
  const ColumnGroup<Config> at = group_at<Config>(p, number, lane);
  GroupValues<Config> values;
  values.load(at, 0, p.columns);
  float most = values.most(0.0f);
  if constexpr (Config::kTurns) {
    for (int start = Shape::kTurn; start < at.columns; start += Shape::kTurn) {
      values.load(at, start, p.columns);
      most = values.most(most);
    }
  }
  const float scale = scale_of<Config>(most_of_lanes<Config>(most));
  const GroupDivisor divisor(scale);
  if (at.exists && lane == 0) {
    if constexpr (kByteScales<Config>) {
      *at.scale = scale_of_float(scale);
    } else {
      *at.scale = scale;
    }
  }
  if constexpr (Config::kTurns) {
    for (int start = 0; start < at.columns; start += Shape::kTurn) {
      values.load(at, start, p.columns);
      values.store(at, start, divisor);
    }
  } else {
    values.store(at, 0, divisor);
  }
}

}  // namespace kiln
