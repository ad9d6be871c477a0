// From accumulators to the output: the epilogue in registers, then through slabs of shared memory
// to the copy engine.
#pragma once
#include "/kiln/gemm/epilogue.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/sm90/slab.cuh"

namespace kiln {

// Two neighbouring elements of a row, as floats; `count` of them exist. kWhole: both or none do,
// and the address is a multiple of two elements.
template <bool kWhole, class T>
__device__ __forceinline__ Pair load_pair(const T* source, int count) {
  if constexpr (kWhole) {
    if (count <= 0) return {0.0f, 0.0f};
    if constexpr (sizeof(T) == 4) {
      const float2 pair = *reinterpret_cast<const float2*>(source);
      return {pair.x, pair.y};
    } else {
      const u32 word = *reinterpret_cast<const u32*>(source);
      return {to_float(T{static_cast<u16>(word)}), to_float(T{static_cast<u16>(word >> 16)})};
    }
  } else {
    return {count > 0 ? to_float(source[0]) : 0.0f, count > 1 ? to_float(source[1]) : 0.0f};
  }
}

// A math warpgroup's way to the output. Two slabs take turns, so that one is filled while the copy
// engine reads the other.
template <class Config, class Epilogue>
class TileStore {
  using Shape = Sm90Shape<Config>;
  using Output = typename Config::Output;
  using Bias = typename Config::Bias;
  using Residual = typename Config::Residual;
  static constexpr bool kSwapped = Config::kSwapped;
  static constexpr bool kWhole = Config::kStores == Access::vectors;

 public:
  using Slab = conditional<kSwapped, TransposedSlab<Output, Config::kBlockN>,
                           UprightSlab<Output, Config::kBlockN>>;
  static constexpr int kSums = Slab::kTiles * 4;  // of a thread in a slab

  // `group`: among all math groups of the CTA.
  __device__ __forceinline__ TileStore(const GemmSm90Params<TensorMap>& params, int group)
      : params_(params),
        slabs_(Shape::base() + Shape::kOutputAt + group * 2 * Shape::kOutputSlabBytes),
        barrier_(1 + group) {}

  // Writes slab `slab` of the 64 x kBlockN tile of the product at `row` and `column`.
  __device__ __forceinline__ void store(const float* sums, int slab, int row, int column,
                                        int batch) {
    const u32 memory = slabs_ + turn_ * Shape::kOutputSlabBytes;
    turn_ ^= 1;
    column += slab * Slab::kTiles * 8;
    const OutputPosition first = kSwapped ? OutputPosition{column, row} : OutputPosition{row, column};
    if (leads()) wait_stores_read<1>();
    sync_threads<128>(barrier_);
    float values[Slab::kTiles][4];
#pragma unroll
    for (int i = 0; i < Slab::kTiles * 2; ++i) {
      const Pair pair = finish_pair({sums[i * 2], sums[i * 2 + 1]}, first, i / 2, i % 2, batch);
      values[i / 2][i % 2 * 2] = pair.first, values[i / 2][i % 2 * 2 + 1] = pair.second;
    }
    Slab::write(memory, values);
    fence_async_proxy();
    sync_threads<128>(barrier_);
#pragma unroll
    for (int box = 0; box < Slab::kBoxes; ++box) {
      write_out(memory + box * Slab::kBoxRows * 128, first.row, first.column + box * Slab::kColumns,
                batch);
    }
    if (Config::kStores != Access::elements && leads()) commit_stores();
  }

  // Before the CTA ends: its shared memory must stay until it has been read.
  __device__ __forceinline__ void finish() const {
    if (leads()) wait_stores_read<0>();
  }

 private:
  __device__ __forceinline__ static bool leads() { return threadIdx.x % 128 == 0; }

  // Two neighbours in a row of the output, or in a column where the product is transposed.
  __device__ __forceinline__ Pair finish_pair(const Pair& sums, const OutputPosition& first, int tile,
                                              int half, int batch) const {
    const OutputPosition offset = Slab::position(tile, half, 0);
    const int row = first.row + offset.row, column = first.column + offset.column;
    const int next_row = row + (kSwapped ? 1 : 0), next_column = column + (kSwapped ? 0 : 1);
    Pair bias{0.0f, 0.0f}, residual{0.0f, 0.0f};
    if constexpr (Epilogue::kBias) bias = load_bias(column, batch);
    if constexpr (Epilogue::kResidual) residual = load_residual(row, column, batch);
    const Epilogue epilogue;
    const float alpha = params_.gemm.alpha;
    return {epilogue(alpha * sums.first, bias.first, residual.first, row, column, batch),
            epilogue(alpha * sums.second, bias.second, residual.second, next_row, next_column,
                     batch)};
  }

  __device__ __forceinline__ Pair load_bias(int column, int batch) const {
    const GemmParams& gemm = params_.gemm;
    const Bias* bias = static_cast<const Bias*>(gemm.bias) + batch * gemm.bias_batch + column;
    if constexpr (!kSwapped) return load_pair<kWhole>(bias, gemm.n - column);
    const float value = column < gemm.n ? to_float(*bias) : 0.0f;
    return {value, value};
  }
  __device__ __forceinline__ Pair load_residual(int row, int column, int batch) const {
    const GemmParams& gemm = params_.gemm;
    const Residual* residual = static_cast<const Residual*>(gemm.residual) +
                               batch * gemm.residual_batch + row * gemm.residual_ld + column;
    if constexpr (!kSwapped) {
      return load_pair<kWhole>(residual, row < gemm.m ? gemm.n - column : 0);
    }
    const int rows = column < gemm.n ? gemm.m - row : 0;  // that exist
    return {rows > 0 ? to_float(residual[0]) : 0.0f,
            rows > 1 ? to_float(residual[gemm.residual_ld]) : 0.0f};
  }

  // One box; after a barrier of the group.
  __device__ __forceinline__ void write_out(u32 box, int row, int column, int batch) const {
    if constexpr (Config::kStores != Access::elements) {
      if (leads()) store_box(params_.out, box, column, row, batch);
    } else {
      constexpr int kColumns = Slab::kColumns, kChunk = 16 / static_cast<int>(sizeof(Output));
      const GemmParams& gemm = params_.gemm;
      const int own = threadIdx.x % kColumns;
      if (column + own >= gemm.n) return;
      Output* out = static_cast<Output*>(gemm.out) + batch * gemm.out_batch + column + own;
#pragma unroll 4
      for (int i = threadIdx.x % 128 / kColumns; i < Slab::kBoxRows; i += 128 / kColumns) {
        const u32 source = box + Slab::Rows::offset(i, own / kChunk) + own % kChunk * sizeof(Output);
        if (row + i < gemm.m) out[(row + i) * gemm.out_ld] = load_shared<Output>(source);
      }
    }
  }

  const GemmSm90Params<TensorMap>& params_;
  u32 slabs_, barrier_, turn_ = 0;
};

}  // namespace kiln
