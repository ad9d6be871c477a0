// From accumulators to the output: the epilogue in registers, then through slabs of shared memory
// to the copy engine.
#pragma once
#include "/kiln/gemm/epilogue.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/sm90/scales.cuh"
#include "/kiln/gemm/sm90/tile.cuh"
#include "/kiln/sm90/warpgroup.cuh"

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

// A math warpgroup's way to the output. 64 rows times 128 bytes of columns at a time are a slab: two
// of them take turns, so that one is filled while the copy engine reads the other.
template <class Config, class Epilogue>
class TileStore {
  using Shape = Sm90Shape<Config>;
  using Output = typename Config::Output;
  using Bias = typename Config::Bias;
  using Residual = typename Config::Residual;
  static constexpr bool kWhole = Config::kStores == Access::vectors;
  static constexpr int kSlabColumns = 128 / static_cast<int>(sizeof(Output));
  static constexpr int kTilesN = kSlabColumns / 8;  // accumulator tiles of 8 columns in a slab
  static constexpr int kSlabs = ceil_div(Config::kBlockN, kSlabColumns);

 public:
  // `group`: among all math groups of the CTA.
  __device__ __forceinline__ TileStore(const GemmSm90Params<TensorMap>& params, int group)
      : params_(params),
        slabs_(Shape::base() + Shape::kOutputAt + group * 2 * Shape::kOutputSlabBytes),
        barrier_(1 + group),
        scales_(params.gemm) {}

  // 64 rows from `row` on.
  __device__ __forceinline__ void store(const float (&acc)[Shape::kRegisters], int row, int column,
                                        int batch) {
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab) {
      const u32 memory = slabs_ + slab % 2 * Shape::kOutputSlabBytes;
      if (leads()) wait_stores_read<1>();
      sync_threads<128>(barrier_);
      fill(memory, acc, slab, row, column + slab * kSlabColumns, batch);
      fence_async_proxy();
      sync_threads<128>(barrier_);
      write_out(memory, row, column + slab * kSlabColumns, batch);
    }
  }

  // Before the CTA ends: its shared memory must stay until it has been read.
  __device__ __forceinline__ void finish() const {
    if (leads()) wait_stores_read<0>();
  }

 private:
  __device__ __forceinline__ static bool leads() { return threadIdx.x % 128 == 0; }

  // This thread's outputs of the slab: in each tile of 8 columns, two neighbours of two rows.
  __device__ __forceinline__ void fill(u32 memory, const float (&acc)[Shape::kRegisters], int slab,
                                       int row, int column, int batch) const {
    // Addresses are computed here and not ahead of the main loop, which leaves no registers for
    // them.
    const u32 thread = opaque(threadIdx.x) % 128;
    const int lane = thread % 32, warp_row = thread / 32 * 16;
    const Epilogue epilogue;
    float values[kTilesN][4];
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
      const int own_column = column + j * 8 + lane % 4 * 2;
      Pair bias{0.0f, 0.0f};
      if constexpr (Epilogue::kBias) bias = load_bias(own_column, batch);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own_row = row + warp_row + half * 8 + lane / 4;
        const float* sum = acc + (slab * kTilesN + j) * 4 + half * 2;
        Pair residual{0.0f, 0.0f};
        if constexpr (Epilogue::kResidual) residual = load_residual(own_row, own_column, batch);
        const Pair scales = scales_(own_row, own_column, batch);
        values[j][half * 2] =
            epilogue(scales.first * sum[0], bias.first, residual.first, own_row, own_column, batch);
        values[j][half * 2 + 1] = epilogue(scales.second * sum[1], bias.second, residual.second,
                                           own_row, own_column + 1, batch);
      }
    }
    write_slab(memory, values, warp_row, lane);
  }

  __device__ __forceinline__ Pair load_bias(int column, int batch) const {
    const GemmParams& gemm = params_.gemm;
    const Bias* bias = static_cast<const Bias*>(gemm.bias) + batch * gemm.bias_batch;
    return load_pair<kWhole>(bias + column, gemm.n - column);
  }
  __device__ __forceinline__ Pair load_residual(int row, int column, int batch) const {
    const GemmParams& gemm = params_.gemm;
    const Residual* residual = static_cast<const Residual*>(gemm.residual) +
                               batch * gemm.residual_batch + row * gemm.residual_ld;
    return load_pair<kWhole>(residual + column, row < gemm.m ? gemm.n - column : 0);
  }

  __device__ __forceinline__ static void write_slab(u32 memory, const float (&values)[kTilesN][4],
                                                    int warp_row, int lane) {
    if constexpr (sizeof(Output) == 2) {
      const int row = warp_row + lane % 16;  // whose address this lane gives to stmatrix
#pragma unroll
      for (int j = 0; j < kTilesN; j += 2) {
        store_matrix_x4(memory + swizzled_offset(row, j + lane / 16),
                        pack2<Output>(values[j][0], values[j][1]),
                        pack2<Output>(values[j][2], values[j][3]),
                        pack2<Output>(values[j + 1][0], values[j + 1][1]),
                        pack2<Output>(values[j + 1][2], values[j + 1][3]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTilesN * 2; ++i) {
        const int row = warp_row + lane / 4 + i % 2 * 8, chunk = i / 2 * 2 + lane % 4 / 2;
        store_shared_8(memory + swizzled_offset(row, chunk) + lane % 2 * 8, values[i / 2][i % 2 * 2],
                       values[i / 2][i % 2 * 2 + 1]);
      }
    }
  }

  // After a barrier of the group.
  __device__ __forceinline__ void write_out(u32 memory, int row, int column, int batch) const {
    if constexpr (Config::kStores != Access::elements) {
      if (leads()) {
        store_box(params_.out, memory, column, row, batch);
        commit_stores();
      }
    } else {
      const GemmParams& gemm = params_.gemm;
      const int own = threadIdx.x % kSlabColumns;
      if (column + own >= gemm.n) return;
      Output* out = static_cast<Output*>(gemm.out) + batch * gemm.out_batch + column + own;
#pragma unroll 4
      for (int i = threadIdx.x % 128 / kSlabColumns; i < 64; i += 128 / kSlabColumns) {
        constexpr int kChunk = 16 / static_cast<int>(sizeof(Output));
        const u32 source = memory + swizzled_offset(i, own / kChunk) + own % kChunk * sizeof(Output);
        if (row + i < gemm.m) out[(row + i) * gemm.out_ld] = load_shared<Output>(source);
      }
    }
  }

  const GemmSm90Params<TensorMap>& params_;
  u32 slabs_, barrier_;
  PairScales<Config> scales_;
};

}  // namespace kiln
