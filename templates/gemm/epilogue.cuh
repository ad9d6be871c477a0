// From accumulators to the output: activation, bias, residual, conversion and guarded stores.
#pragma once
#include "/kiln/base/math.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/tile.cuh"

namespace kiln {

enum class Activation { none, relu, gelu, gelu_tanh, silu };

template <Activation kActivation>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kActivation == Activation::relu) {
    return x < 0.0f ? 0.0f : x;  // unlike max, keeps NaN
  } else if constexpr (kActivation == Activation::gelu) {
    return 0.5f * x * (1.0f + erff(0.7071067811865476f * x));
  } else if constexpr (kActivation == Activation::gelu_tanh) {
    return 0.5f * x * (1.0f + tanh_fast(0.7978845608028654f * (x + 0.044715f * x * x * x)));
  } else if constexpr (kActivation == Activation::silu) {
    return x * sigmoid_fast(x);
  } else {
    return x;
  }
}

// The shape of every epilogue: `acc` is alpha times the sum; an absent bias or residual is 0.
template <Activation kActivation, bool kHasBias, bool kHasResidual>
struct StandardEpilogue {
  static constexpr bool kBias = kHasBias, kResidual = kHasResidual;

  __device__ __forceinline__ float operator()(float acc, float bias, float residual, int /*row*/,
                                              int /*col*/, int /*batch*/) const {
    return activate<kActivation>(acc + bias) + residual;
  }
};

template <class T>
struct Pair {
  T first, second;
};

// Neighbouring elements of which `count` exist. kAligned: the address is a multiple of the pair.
template <bool kAligned, class T>
__device__ __forceinline__ Pair<float> load_pair(const T* source, int count) {
  if constexpr (kAligned) {
    if (count >= 2) {
      using Word = conditional<sizeof(T) == 4, u64, u32>;
      const Word word = *reinterpret_cast<const Word*>(source);
      const Pair<T> pair = *reinterpret_cast<const Pair<T>*>(&word);
      return {to_float(pair.first), to_float(pair.second)};
    }
  }
  return {count >= 1 ? to_float(source[0]) : 0.0f, count >= 2 ? to_float(source[1]) : 0.0f};
}

template <bool kAligned, class T>
__device__ __forceinline__ void store_pair(T* destination, Pair<float> values, int count) {
  const Pair<T> pair = {from_float<T>(values.first), from_float<T>(values.second)};
  if constexpr (kAligned) {
    if (count >= 2) {
      using Word = conditional<sizeof(T) == 4, u64, u32>;
      *reinterpret_cast<Word*>(destination) = *reinterpret_cast<const Word*>(&pair);
      return;
    }
  }
  if (count >= 1) destination[0] = pair.first;
  if (count >= 2) destination[1] = pair.second;
}

// Half `half` of a 16 x 8 accumulator: two neighbouring elements of row g + 8 * half.
__device__ __forceinline__ Pair<float> accumulator_pair(const float (&acc)[4], int half) {
  return {acc[half * 2], acc[half * 2 + 1]};
}
__device__ __forceinline__ Pair<float> accumulator_pair(const u32 (&acc)[2], int half) {
  return {to_float(f16{static_cast<u16>(acc[half])}),
          to_float(f16{static_cast<u16>(acc[half] >> 16)})};
}

template <class Word, int kTiles, int kWords>
__device__ __forceinline__ void copy_accumulators(Word (&to)[kTiles][kWords],
                                                  const Word (&from)[kTiles][kWords]) {
#pragma unroll
  for (int i = 0; i < kTiles * kWords; ++i)
    to[i / kWords][i % kWords] = from[i / kWords][i % kWords];
}

// A warp's own part of shared memory, through which 16 rows at a time of its accumulators go from
// mma.sync's order to rows: global accesses become whole lines, and the epilogue becomes a loop,
// which compiles several times faster than one copy for each register.
template <int kColumns>
struct EpilogueRows {
  static constexpr int kStride = kColumns + 8;  // floats; lanes 4g + t write to 32 different banks
  static constexpr int kBytes = 16 * kStride * 4;

  float* rows;

  template <class Accumulator>
  __device__ __forceinline__ void write(const Accumulator (&accumulators)[kColumns / 8],
                                        int lane) const {
#pragma unroll
    for (int i = 0; i < kColumns / 8 * 2; ++i) {
      const Pair<float> pair = accumulator_pair(accumulators[i / 2], i % 2);
      const int row = lane / 4 + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(rows + row * kStride + column) = {pair.first, pair.second};
    }
  }
  __device__ __forceinline__ Pair<float> read(int row, int column) const {
    const float2 pair = *reinterpret_cast<const float2*>(rows + row * kStride + column);
    return {pair.x, pair.y};
  }
};

// Finishes 16 rows of a warp's tile; `first_row` and `first_column` are theirs in the output. Lanes
// form a grid of kLaneRows x kLaneColumns pairs, which steps over the rows.
template <class Config, class Epilogue, int kColumns>
__device__ __forceinline__ void store_rows(const GemmParams& params,
                                           const EpilogueRows<kColumns>& sums, int batch,
                                           int first_row, int first_column, int lane) {
  using Output = typename Config::Output;
  using Bias = typename Config::Bias;
  using Residual = typename Config::Residual;
  constexpr int kLaneColumns = kColumns % 64 == 0 ? 32 : kColumns % 32 == 0 ? 16 : 8;
  constexpr int kLaneRows = 32 / kLaneColumns;
  const Epilogue epilogue;
#pragma unroll 1
  for (int in_tile = lane % kLaneColumns * 2; in_tile < kColumns; in_tile += kLaneColumns * 2) {
    const int column = first_column + in_tile;
    const int count = params.n - column;
    Pair<float> bias = {};
    if constexpr (Epilogue::kBias) {
      bias = load_pair<false>(
          static_cast<const Bias*>(params.bias) + batch * params.bias_batch + column, count);
    }
#pragma unroll 2
    for (int i = lane / kLaneColumns; i < 16; i += kLaneRows) {
      const int row = first_row + i;
      if (row >= params.m) break;
      Pair<float> residual = {};
      if constexpr (Epilogue::kResidual) {
        residual = load_pair<Config::kAlignedStores>(static_cast<const Residual*>(params.residual) +
                                                         batch * params.residual_batch +
                                                         row * params.residual_ld + column,
                                                     count);
      }
      const Pair<float> sum = sums.read(i, in_tile);
      const Pair<float> values = {
          epilogue(params.alpha * sum.first, bias.first, residual.first, row, column, batch),
          epilogue(params.alpha * sum.second, bias.second, residual.second, row, column + 1,
                   batch)};
      store_pair<Config::kAlignedStores>(static_cast<Output*>(params.out) +
                                             batch * params.out_batch + row * params.out_ld +
                                             column,
                                         values, count);
    }
  }
}

// Writes a warp's tile, whose first row and column in the output are `row` and `column`. Every
// warp must be done with the stages, whose shared memory is used again.
template <class Config, class Epilogue, class Accumulator, int kTilesM, int kTilesN>
__device__ __forceinline__ void store_tile(const GemmParams& params,
                                           Accumulator (&accumulators)[kTilesM][kTilesN], int batch,
                                           int row, int column, int warp, int lane) {
  using Rows = EpilogueRows<kTilesN * 8>;
  const Rows rows = {reinterpret_cast<float*>(shared_memory() + warp * Rows::kBytes)};
#pragma unroll 1
  for (int i = 0; i < kTilesM; ++i) {
    rows.write(accumulators[0], lane);
    __syncwarp();
    store_rows<Config, Epilogue>(params, rows, batch, row + i * 16, column, lane);
    if constexpr (kTilesM > 1) __syncwarp();
    // The registers move up a place: indexing them by `i` would need an unrolled loop.
#pragma unroll
    for (int j = 1; j < kTilesM; ++j) copy_accumulators(accumulators[j - 1], accumulators[j]);
  }
}

}  // namespace kiln
