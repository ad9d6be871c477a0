// A group of columns that is quantised: where it lies, and the values of a thread's columns. Config
// is that of quantize.cuh.
#pragma once
#include "/kiln/base/activation.cuh"
#include "/kiln/base/byte_scales.cuh"
#include "/kiln/base/quantize.cuh"
#include "/kiln/quantize/params.h"

namespace kiln {

template <class Config>
struct QuantizeShape {
  static constexpr int kLanes = Config::kLanes;
  static constexpr int kCluster = Config::kCluster;
  static constexpr int kThreads = quantize_threads(kLanes);
  static constexpr int kTeams = kThreads / kLanes;  // that have groups of their own
  // Between a thread's accesses.
  static constexpr int kStep = kCluster * kLanes * Config::kVector;
  static constexpr int kTurn = kStep * Config::kVectors;  // columns of a group at a time
  static constexpr bool kIsWarp = kLanes <= 32;

  static_assert(is_quantized<typename Config::Output>,
                "quantize: Output must be an 8-bit float or int8");
  static_assert(
      kIsWarp ? kLanes >= 1 && (kLanes & (kLanes - 1)) == 0
              : kLanes % 32 == 0 && kLanes <= 1024 && kThreads == kLanes,
      "quantize: kLanes must be a power of two up to 32, or a multiple of 32 from 256 on");
  static_assert(!Config::kKeeps || (Config::kTurns && kTeams == 1),
                "quantize: kKeeps needs kTurns, and a group for each CTA");
  static_assert(kCluster == 1 || (kCluster <= 8 && kTeams == 1 && !Config::kTurns),
                "quantize: a cluster of up to 8 CTAs shares one group, which its registers hold");
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
    for (int v = 0; v < Config::kVectors; ++v) set(v, parts[v], values[kGated ? v : 0]);
  }
  // `value` counts for nothing without a gate.
  __device__ __forceinline__ void set(int v, const Part& x, const Part& value) {
#pragma unroll
    for (int i = 0; i < Config::kVector; ++i) {
      columns[v][i] = x[i];
      if constexpr (kGated) columns[v][i] = activate<Config::kGate>(x[i]) * value[i];
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

}  // namespace kiln
