// Merges the partial results of attention in one launch: each is read once, and written once.
// A rendered kernel calls merge_states<Config>(params) with a Config of
//   Input, Output, Sink    the dtypes: of outs, out and sinks. An absent one has any of them
//   kSinks                 whether there are sinks
//   kVector                elements of an access; it divides the columns. Tensors begin, and
//                          tokens, heads and parts follow each other, at multiples of kVector of
//                          their own elements or of 16 bytes, whichever is less
//   kLanes, kVectors       threads that share a row of columns, 1 to 32, a power of two, and the
//                          accesses of each of them at a time
//   kParts                 parts that are read at a time
// The launch has merge_blocks() CTAs of kMergeThreads threads.
#pragma once
#include "/kiln/base/math.cuh"
#include "/kiln/base/pack.cuh"
#include "/kiln/merge_states/params.h"

namespace kiln {

template <class Config>
struct MergeShape {
  static constexpr int kLanes = Config::kLanes;
  static constexpr int kStep = Config::kLanes * Config::kVector;  // between a thread's accesses
  static constexpr int kTurn = kStep * Config::kVectors;          // columns of a row at a time

  static_assert(kLanes >= 1 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0,
                "merge_states: kLanes must be a power of two up to 32");
  static_assert(Config::kVector * sizeof(typename Config::Input) <= 16 &&
                    (Config::kVector & (Config::kVector - 1)) == 0,
                "merge_states: kVector must be a power of two of at most 16 bytes of Input");
  static_assert(Config::kVectors >= 1 && Config::kParts >= 1,
                "merge_states: kVectors and kParts must be at least 1");
};

// What one thread has merged so far of its columns of one row.
template <class Config>
struct MergedColumns {
  static constexpr int kVector = Config::kVector, kVectors = Config::kVectors;
  using Part = Pack<typename Config::Input, kVector>;

  float most = -KILN_INFINITY;  // of the LSEs
  float sum = 0.0f;             // of the weights
  float columns[kVectors][kVector] = {};

  // The weights of all parts so far are relative to the largest LSE, so none overflows.
  __device__ __forceinline__ void add(const float (&lses)[Config::kParts],
                                      const Part (&parts)[Config::kParts][kVectors],
                                      float to_log2) {
    float next = most;
#pragma unroll
    for (float lse : lses) next = fmaxf(next, lse);
    const float origin = next == -KILN_INFINITY ? 0.0f : next;
    const float kept = exp2_approx((most - origin) * to_log2);
    most = next;
    sum *= kept;
#pragma unroll
    for (auto& vector : columns) {
#pragma unroll
      for (float& column : vector) column *= kept;
    }
#pragma unroll
    for (int i = 0; i < Config::kParts; ++i) {
      const float weight = exp2_approx((lses[i] - origin) * to_log2);
      sum += weight;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          // A part without weight may hold NaN.
          columns[v][j] += weight == 0.0f ? 0.0f : weight * parts[i][v][j];
        }
      }
    }
  }
};

// An LSE of +inf is what flash-attn writes where a row sees no key.
__device__ __forceinline__ float without_infinity(float lse) {
  return lse == KILN_INFINITY ? -KILN_INFINITY : lse;
}

// Reads and merges the columns from `first` on of all parts.
template <class Config>
__device__ __forceinline__ void merge_columns(MergedColumns<Config>& merged,
                                              const MergeParams& params, u32 token, u32 head,
                                              int first) {
  using Input = typename Config::Input;
  const float* lses = params.lses + token * params.lses_at.token + head * params.lses_at.head;
  const Input* outs = static_cast<const Input*>(params.outs) + token * params.outs_at.token +
                      head * params.outs_at.head + first;
  for (int done = 0; done < params.parts; done += Config::kParts) {
    float some[Config::kParts];
    typename MergedColumns<Config>::Part parts[Config::kParts][Config::kVectors];
#pragma unroll
    for (int i = 0; i < Config::kParts; ++i) {
      const bool exists = done + i < params.parts;
      some[i] = exists ? without_infinity(lses[i * params.lses_at.part]) : -KILN_INFINITY;
#pragma unroll
      for (int v = 0; v < Config::kVectors; ++v) {
        const int column = v * MergeShape<Config>::kStep;
        parts[i][v].load_once_from(outs + i * params.outs_at.part + column,
                                   exists && first + column < params.columns);
      }
    }
    merged.add(some, parts, params.to_log2);
    lses += Config::kParts * params.lses_at.part;
    outs += Config::kParts * params.outs_at.part;
  }
}

template <class Config>
__device__ __forceinline__ void store_columns(const MergedColumns<Config>& merged, float scale,
                                              const MergeParams& params, u32 token, u32 head,
                                              int first) {
  using Output = typename Config::Output;
  Output* const out = static_cast<Output*>(params.out) + token * params.out_at.token +
                      head * params.out_at.head + first;
#pragma unroll
  for (int v = 0; v < Config::kVectors; ++v) {
    const int column = v * MergeShape<Config>::kStep;
    float values[Config::kVector];
#pragma unroll
    for (int j = 0; j < Config::kVector; ++j) values[j] = merged.columns[v][j] * scale;
    Pack<Output, Config::kVector> pack;
    pack.set(values);
    if (first + column < params.columns) pack.store_whole_to(out + column);
  }
}

template <class Config>
__device__ __forceinline__ void merge_states(const MergeParams& params) {
  using Shape = MergeShape<Config>;
  const u32 row = blockIdx.x * (kMergeThreads / Shape::kLanes) + threadIdx.x / Shape::kLanes;
  const u32 token = row / params.heads, head = row % params.heads;
  if (token >= params.tokens) return;
  const int lane = threadIdx.x % Shape::kLanes;
  int start = 0;
  do {  // once without columns, too, for the LSE
    const int first = start + lane * Config::kVector;
    MergedColumns<Config> merged;
    merge_columns(merged, params, token, head, first);
    const bool empty = merged.sum == 0.0f;
    const float lse =
        empty ? -KILN_INFINITY : merged.most + log2_approx(merged.sum) * params.from_log2;
    float scale = empty ? 0.0f : 1.0f / merged.sum;
    if constexpr (Config::kSinks) {
      const float sink = to_float(static_cast<const typename Config::Sink*>(
          params.sinks)[static_cast<i64>(head) * params.sinks_stride]);
      const float share =
          reciprocal_approx(1.0f + exp2_approx(sink * kLog2e - lse * params.to_log2));
      scale = empty ? 0.0f : scale * share;
    }
    store_columns(merged, scale, params, token, head, first);
    if (params.lse != nullptr && start == 0 && lane == 0) {
      params.lse[token * params.lse_at.token + head * params.lse_at.head] = lse;
    }
    start += Shape::kTurn;
  } while (start < params.columns);
}

}  // namespace kiln
