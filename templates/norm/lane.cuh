// One thread's share of a row: its loads, its part of the statistics and its outputs.
#pragma once
#include "/kiln/base/activation.cuh"
#include "/kiln/base/copy.cuh"
#include "/kiln/base/pack.cuh"
#include "/kiln/norm/params.h"
#include "/kiln/norm/statistics.cuh"

namespace kiln {

template <class T>
inline constexpr bool is_norm_element = is_same<T, f16> || is_same<T, bf16> || is_same<T, float>;

// Constants derived from a Config, and the conditions it must meet; norm.cuh lists its fields.
template <class Config>
struct NormShape {
  static constexpr int kThreads = Config::kThreadsPerRow * Config::kRowsPerBlock;
  static constexpr int kLanes = Config::kThreadsPerRow < 32 ? Config::kThreadsPerRow : 32;
  static constexpr int kWarps = ceil_div(Config::kThreadsPerRow, 32);  // warps per row in a CTA
  static constexpr int kCtaColumns =
      norm_cta_columns(Config::kVector, Config::kVectors, Config::kThreadsPerRow);
  // The distance from a thread's vector to its next one. The CTAs of a cluster take turns, so that
  // each has work even in a row that does not fill them.
  static constexpr int kStep = Config::kVector * Config::kThreadsPerRow * Config::kCluster;

  // The vectors of a row, x and residual, that a thread holds in shared memory.
  static constexpr int kStageVectors = Config::kVectors * (Config::kResidual ? 2 : 1);

  static_assert(is_norm_element<typename Config::Input> &&
                    is_norm_element<typename Config::Weight> &&
                    is_norm_element<typename Config::Bias> &&
                    is_norm_element<typename Config::Output>,
                "norm: Input, Weight, Bias and Output must be f16, bf16 or float");
  static_assert(Config::kVector >= 1 && (Config::kVector & (Config::kVector - 1)) == 0 &&
                    Config::kVector * sizeof(typename Config::Input) <= 16,
                "norm: kVector must be a power of two of at most 16 bytes of Input");
  static_assert(Config::kVectors >= 1 && Config::kVector * Config::kVectors <= 64,
                "norm: kVector * kVectors must be 1 to 64");
  static_assert(kLanes == 32 ? Config::kThreadsPerRow % 32 == 0
                             : (kLanes > 0 && (kLanes & (kLanes - 1)) == 0),
                "norm: kThreadsPerRow must be a power of two or a multiple of 32");
  static_assert(Config::kRowsPerBlock >= 1 && kThreads % 32 == 0 && kThreads <= 1024,
                "norm: kThreadsPerRow * kRowsPerBlock must be a multiple of 32, at most 1024");
  static_assert(Config::kCluster == 1 || (Config::kCluster >= 2 && Config::kCluster <= 8 &&
                                          Config::kRowsPerBlock == 1 && kLanes == 32),
                "norm: a cluster of 2 to 8 CTAs shares one row of 32 threads or more in each");
  static_assert(Config::kStages == 0 || Config::kVector * sizeof(typename Config::Input) == 16,
                "norm: kStages other than 0 takes vectors of 16 bytes");
  static_assert(!Config::kBias || Config::kNorm == Norm::layer, "norm: only layer has a bias");
};

__device__ __forceinline__ u8* norm_stages() {
  extern __shared__ __align__(128) u8 norm_shared_memory[];
  return norm_shared_memory;
}

// The part of a row that a thread has loaded.
template <class Config>
struct LoadedRow {
  using Part = Pack<typename Config::Input, Config::kVector>;
  Part x[Config::kVectors];
  Part residual[Config::kResidual ? Config::kVectors : 1];
};

// The values s: in fp32 if they are sums, else in Input's own bits, which take fewer registers.
template <class Config>
struct RowValues {
  using Part = conditional<Config::kResidual, Pack<float, Config::kVector>,
                           Pack<typename Config::Input, Config::kVector>>;
  Part vectors[Config::kVectors];

  __device__ __forceinline__ explicit RowValues(const LoadedRow<Config>& row) {
#pragma unroll
    for (int v = 0; v < Config::kVectors; ++v) {
      if constexpr (Config::kResidual) {
        float sums[Config::kVector];
#pragma unroll
        for (int i = 0; i < Config::kVector; ++i) sums[i] = row.x[v][i] + row.residual[v][i];
        vectors[v].set(sums);
      } else {
        vectors[v] = row.x[v];
      }
    }
  }
};

// The weights and biases of a thread's columns.
template <class Config>
struct RowWeights {
  Pack<typename Config::Weight, Config::kVector> weight[Config::kVectors];
  Pack<typename Config::Bias, Config::kVector> bias[Config::kVectors];
};

template <class Config>
class NormLane {
  using Shape = NormShape<Config>;
  using Input = typename Config::Input;
  using Output = typename Config::Output;
  static constexpr int kVector = Config::kVector;
  static constexpr int kVectors = Config::kVectors;

 public:
  using Loaded = LoadedRow<Config>;
  using Values = RowValues<Config>;
  using Weights = RowWeights<Config>;

  // True if the distances of a row from its mean may be small compared with the mean.
  static constexpr bool kFine = Config::kResidual || sizeof(Input) == 4;

  // `first` is the thread's first column.
  __device__ __forceinline__ NormLane(const NormParams& params, int first)
      : params_(params), first_(first) {}

  __device__ __forceinline__ void load(Loaded& loaded, u32 row) const {
    load(loaded.x, params_.x, params_.x_rows, row);
    if constexpr (Config::kResidual) {
      load(loaded.residual, params_.residual, params_.residual_rows, row);
    }
  }

  // The same through shared memory. Each thread reads only what it copied itself, so it waits for
  // no other. A group of copies is committed after each fetch(), and a row is taken once
  // kStages - 1 further groups are.
  __device__ __forceinline__ void fetch(u32 stage, u32 row) const {
    fetch(slot(stage, 0), params_.x, params_.x_rows, row);
    if constexpr (Config::kResidual) {
      fetch(slot(stage, kVectors), params_.residual, params_.residual_rows, row);
    }
  }
  __device__ __forceinline__ void take(Loaded& loaded, u32 stage) const {
    wait_copies<true, Config::kStages - 1>();
    take(loaded.x, slot(stage, 0));
    if constexpr (Config::kResidual) take(loaded.residual, slot(stage, kVectors));
  }

  __device__ __forceinline__ void load(Weights& weights) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) load(weights, v);
  }

  // Sums the thread's columns; absent ones are zeros. Each vector has its own chain of additions.
  __device__ __forceinline__ float sum(const Values& values) const {
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const auto elements = unread(values.vectors[v]);
      float of_vector = 0.0f;
#pragma unroll
      for (int i = 0; i < kVector; ++i) of_vector += elements[i];
      sum += of_vector;
    }
    return sum;
  }
  // Returns the sums of the squared distances from `mean` and of the distances.
  __device__ __forceinline__ float2 distances(const Values& values, float mean) const {
    float squares = 0.0f, sum = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const auto elements = unread(values.vectors[v]);
      float squares_of_vector = 0.0f, sum_of_vector = 0.0f;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float distance = elements[i] - mean;
        squares_of_vector += distance * distance;
        sum_of_vector += distance;
      }
      squares += has(v) ? squares_of_vector : 0.0f;
      sum += has(v) ? sum_of_vector : 0.0f;
    }
    return {squares, sum};
  }

  __device__ __forceinline__ void store_sums(const Values& values, u32 row) const {
    if (params_.residual_out == nullptr || row >= static_cast<u32>(params_.rows)) return;
    Input* const to = place<Input>(params_.residual_out, params_.residual_out_rows, row);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const auto elements = unread(values.vectors[v]);
      float sums[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) sums[i] = elements[i];
      Pack<Input, kVector> pack;
      pack.set(sums);
      if (has(v)) pack.store_to(to + v * Shape::kStep);
    }
  }

  // Stores the outputs, and loads `weights` vector by vector unless Config::kEarlyWeights is set.
  __device__ __forceinline__ void store(const Values& values, Normalizer normalizer,
                                        Weights& weights, u32 row) const {
    if (row >= static_cast<u32>(params_.rows)) return;
    Output* const to = place<Output>(params_.out, params_.out_rows, row);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (!Config::kEarlyWeights) load(weights, v);
      const auto elements = unread(values.vectors[v]);
      const auto weight = unread(weights.weight[v]);
      const auto bias = unread(weights.bias[v]);
      float outputs[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        float y = (elements[i] - normalizer.mean) * normalizer.scale;
        if constexpr (Config::kWeight) y *= weight[i] + params_.weight_offset;
        if constexpr (Config::kBias) y += bias[i];
        outputs[i] = activate<Config::kActivation>(y);
      }
      Pack<Output, kVector> pack;
      pack.set(outputs);
      if (has(v)) pack.store_to(to + v * Shape::kStep);
    }
  }

 private:
  // A vector exists as a whole or not at all, because kVector divides the columns.
  __device__ __forceinline__ bool has(int v) const {
    return v * Shape::kStep < params_.columns - first_;
  }
  // The address of the thread's first vector; the others follow at multiples of kStep.
  template <class T>
  __device__ __forceinline__ T* place(void* tensor, const NormRows& rows, u32 row) const {
    const u32 inner = static_cast<u32>(params_.inner_rows);
    // One run of rows needs no division, which costs as much as a whole vector.
    const i64 start = params_.inner_rows == params_.rows
                          ? static_cast<i64>(row) * rows.inner
                          : static_cast<i64>(row / inner) * rows.outer +
                                static_cast<i64>(row % inner) * rows.inner;
    return static_cast<T*>(tensor) + (start + first_);
  }
  template <class T>
  __device__ __forceinline__ const T* place(const void* tensor, const NormRows& rows,
                                            u32 row) const {
    return place<T>(const_cast<void*>(tensor), rows, row);
  }

  // In a loop over rows, hides from the compiler that a vector has been read before. Its elements,
  // twice the registers in fp32, would otherwise be kept between uses, those of weights for good.
  template <class T>
  __device__ __forceinline__ static Pack<T, kVector> unread(Pack<T, kVector> pack) {
    if constexpr (Config::kStages > 0 && sizeof(T) == 2) {
#pragma unroll
      for (u32& word : pack.words) word = opaque(word);
    }
    return pack;
  }

  __device__ __forceinline__ void load(typename Loaded::Part (&parts)[kVectors], const void* tensor,
                                       const NormRows& rows, u32 row) const {
    const bool exists = row < static_cast<u32>(params_.rows);
    const Input* const source = place<Input>(tensor, rows, row);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      parts[v].load_once_from(source + v * Shape::kStep, exists && has(v));
    }
  }

  // Returns the shared address of the thread's vector `index`.
  __device__ __forceinline__ u32 slot(u32 stage, u32 index) const {
    return shared_address(norm_stages()) +
           ((stage * Shape::kStageVectors + index) * Shape::kThreads + threadIdx.x) * 16;
  }
  __device__ __forceinline__ void fetch(u32 slot, const void* tensor, const NormRows& rows,
                                        u32 row) const {
    const bool exists = row < static_cast<u32>(params_.rows);
    const Input* const source = place<Input>(tensor, rows, row);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      copy_async_16(slot + v * Shape::kThreads * 16, source + v * Shape::kStep,
                    exists && has(v) ? 16 : 0);
    }
  }
  __device__ __forceinline__ static void take(typename Loaded::Part (&parts)[kVectors], u32 slot) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const float4 quad = load_shared_16(slot + v * Shape::kThreads * 16);
      u32(&words)[4] = parts[v].words;
      words[0] = __float_as_uint(quad.x), words[1] = __float_as_uint(quad.y);
      words[2] = __float_as_uint(quad.z), words[3] = __float_as_uint(quad.w);
    }
  }

  __device__ __forceinline__ void load(Weights& weights, int v) const {
    const int column = first_ + v * Shape::kStep;
    if constexpr (Config::kWeight) {
      weights.weight[v].load_from(
          static_cast<const typename Config::Weight*>(params_.weight) + column, has(v));
    }
    if constexpr (Config::kBias) {
      weights.bias[v].load_from(static_cast<const typename Config::Bias*>(params_.bias) + column,
                                has(v));
    }
  }

  const NormParams& params_;
  int first_;
};

}  // namespace kiln
