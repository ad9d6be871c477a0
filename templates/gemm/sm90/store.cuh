// Turns accumulators into output: applies the epilogue in registers, then passes the results
// through slabs of shared memory to the copy engine.
#pragma once
#include "/kiln/gemm/epilogue.cuh"
#include "/kiln/gemm/groups.cuh"
#include "/kiln/gemm/params.h"
#include "/kiln/gemm/raster.cuh"
#include "/kiln/gemm/sm90/bias.cuh"
#include "/kiln/gemm/sm90/main_loop.cuh"
#include "/kiln/gemm/sm90/residual.cuh"
#include "/kiln/gemm/sm90/scales.cuh"
#include "/kiln/gemm/sm90/slab.cuh"

namespace kiln {

// Returns two neighbouring elements of a row as floats; only the first `count` exist. With kWhole
// both or neither exist, and the address is a multiple of two elements.
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

// Writes a math warpgroup's tiles to the output. Of two slabs one is filled while the copy engine
// reads the other.
template <class Config, class Epilogue>
class TileStore {
  using Shape = Sm90Shape<Config>;
  using Output = typename Config::Output;
  using RingPosition = typename Shape::StageRing::Position;
  using Residual = typename Config::Residual;
  static constexpr bool kSwapped = Config::kSwapped;
  static constexpr bool kWhole = Config::kStores == Access::vectors;

 public:
  static constexpr bool kShared = Shape::kSumsInCluster;
  using Swapped =
      conditional<Shape::kGated,
                  GatedTransposedSlab<Output, Config::kBlockN, Config::kSplits, kShared>,
                  TransposedSlab<Output, Config::kBlockN, Config::kSplits, kShared>>;
  using Slab = conditional<kSwapped, Swapped, UprightSlab<Output, Shape::kOutputN, kShared>>;
  static_assert(Slab::kBoxes * Slab::kBoxRows * Slab::kRowBytes <= Shape::kOutputSlabBytes);
  static constexpr int kSums = Slab::kTiles * 4;  // per thread and slab
  // Whether the last slab of a tile holds as many rows or columns as the others.
  static constexpr bool kWholeSlabs = Slab::kSlabs * Slab::kTiles * 8 == Shape::kOutputN;

  // `group` is the index among all math groups of the CTA, `first_row` the first row of the group's
  // part of the tile, in rows of the output or of the output transposed. `memory` has room for the
  // slabs and the bias.
  __device__ __forceinline__ TileStore(const GemmSm90Params<TensorMap>& params, int group,
                                       int first_row, u32 memory = Shape::base() + Shape::kOutputAt)
      : params_(params),
        slabs_(memory + group * Shape::kGroupSlabs * Shape::kOutputSlabBytes),
        barrier_(1 + group),
        first_row_(first_row),
        bias_(memory + Shape::kSlabBytes, group),
        scales_(params.gemm) {}

  // Called before the products of the tile at `at`.
  __device__ __forceinline__ void begin(const TilePosition& at) {
    if constexpr (Epilogue::kBias) {
      bias_.fetch(params_.gemm, kSwapped ? at.row + first_row_ : at.column, at.batch);
    }
  }
  // Called after them and before the first slab, with `position` just past the tile's K-tiles.
  __device__ __forceinline__ void prepare(RingPosition& position) {
    if constexpr (Epilogue::kBias) bias_.keep();
    if constexpr (Config::kResidualBoxes) residual_.wait_for(position);
  }

  // Writes slab `slab` of the group's `tile_m`-th 64 rows of the product. If `sums` are those of
  // gates, `ups` are those of their partners.
  __device__ __forceinline__ void store(const float* sums, const float* ups, int tile_m, int slab,
                                        const TilePosition& at) {
    const u32 memory = slabs_ + turn_ * Shape::kOutputSlabBytes;
    if constexpr (Shape::kGroupSlabs == 2) turn_ ^= 1;
    const int row = at.row + first_row_ + tile_m * Shape::kOutputRows;
    const int column = at.column + slab * Slab::kTiles * 8;
    const OutputPosition first =
        kSwapped ? OutputPosition{column, row} : OutputPosition{row, column};
    if (leads()) wait_stores_read<Shape::kGroupSlabs - 1>();
    sync_threads<128>(barrier_);
    // opaque() keeps values derived from the thread index from being computed ahead of the main
    // loop, which leaves no registers for them.
    const u32 thread = opaque(threadIdx.x);
    constexpr int kPairs = Slab::kValues / 2;
    float values[Slab::kTiles][Slab::kValues];
#pragma unroll
    for (int i = 0; i < Slab::kTiles * kPairs; ++i) {
      const int tile = i / kPairs, half = i % kPairs, sum = tile * 4 + half * 2;
      if (!kWholeSlabs && slab * Slab::kTiles + tile >= Shape::kOutputN / 8) {  // behind the tile
        values[tile][half * 2] = values[tile][half * 2 + 1] = 0.0f;
        continue;
      }
      const Place place{first, Slab::position(thread, tile, half, 0), tile_m, slab, at.batch};
      const Pair own{sums[sum], sums[sum + 1]};
      Pair pair;
      if constexpr (Shape::kGated) {
        pair = finish_gated(own, {ups[sum], ups[sum + 1]}, place);
      } else {
        pair = finish_pair(own, place);
      }
      values[tile][half * 2] = pair.first, values[tile][half * 2 + 1] = pair.second;
    }
    Slab::write(thread, memory, values);
    fence_async_proxy();
    sync_threads<128>(barrier_);
#pragma unroll
    for (int box = 0; box < Slab::kBoxes; ++box) {
      write_out(memory + box * Slab::kBoxRows * Slab::kRowBytes, first.row,
                first.column + box * Slab::kColumns, at);
    }
    if (Config::kStores != Access::elements && leads()) commit_stores();
  }

  // Called after the last slab of a tile, with `position` as prepare() left it.
  __device__ __forceinline__ void end(const RingPosition& position) const {
    if constexpr (Config::kResidualBoxes) residual_.release(position);
  }

  // Called before the CTA ends: its shared memory must stay until the copies have read it.
  __device__ __forceinline__ void finish() const {
    if (leads()) wait_stores_read<0>();
  }

 private:
  __device__ __forceinline__ static bool leads() { return threadIdx.x % 128 == 0; }

  // Locates two neighbours in a row of the output, or in a column if the product is transposed.
  struct Place {
    OutputPosition slab_first, offset;
    int tile_m, slab, batch;
    __device__ __forceinline__ int row() const { return slab_first.row + offset.row; }
    __device__ __forceinline__ int column() const { return slab_first.column + offset.column; }
  };

  __device__ __forceinline__ Pair finish_pair(const Pair& sums, const Place& at) const {
    const int row = at.row(), column = at.column();
    const int next_row = row + (kSwapped ? 1 : 0), next_column = column + (kSwapped ? 0 : 1);
    Pair bias{0.0f, 0.0f}, residual{0.0f, 0.0f};
    if constexpr (Epilogue::kBias) bias = bias_of(at, 0);
    if constexpr (Epilogue::kResidual) residual = residual_of(at);
    const Pair scales = scales_(row, column, at.batch);
    return {apply_epilogue<Epilogue>(params_, scales.first * sums.first, bias.first, residual.first,
                                     row, column, at.batch),
            apply_epilogue<Epilogue>(params_, scales.second * sums.second, bias.second,
                                     residual.second, next_row, next_column, at.batch)};
  }

  __device__ __forceinline__ Pair finish_gated(const Pair& gates, const Pair& ups,
                                               const Place& at) const {
    Pair gate_bias{0.0f, 0.0f}, up_bias{0.0f, 0.0f}, residual{0.0f, 0.0f};
    if constexpr (Epilogue::kBias) {
      gate_bias = bias_of(at, 0), up_bias = bias_of(at, Shape::kBiasCount / 2);
    }
    if constexpr (Epilogue::kResidual) residual = residual_of(at);
    const Epilogue epilogue;
    const auto scales = scales_.gated(at.row(), at.column(), at.batch);
    return {epilogue(scales.gates.first * gates.first + gate_bias.first,
                     scales.ups.first * ups.first + up_bias.first, residual.first),
            epilogue(scales.gates.second * gates.second + gate_bias.second,
                     scales.ups.second * ups.second + up_bias.second, residual.second)};
  }

  // `first` is where the gates or their partners begin among the group's columns of b.
  __device__ __forceinline__ Pair bias_of(const Place& at, int first) const {
    if constexpr (kSwapped) {
      const float value = bias_[first + at.tile_m * Shape::kOutputRows + at.offset.column];
      return {value, value};
    }
    const int offset = first + at.slab * Slab::kColumns + at.offset.column;
    return {bias_[offset], bias_[offset + 1]};
  }

  __device__ __forceinline__ Pair residual_of(const Place& at) const {
    if constexpr (Config::kResidualBoxes) {
      return residual_.read(at.slab, first_row_ + at.tile_m * 64 + at.offset.row, at.offset.column);
    }
    const GemmParams& gemm = params_.gemm;
    const int rows = at.column() < gemm.n ? gemm.m - at.row() : 0;  // rows that exist
    const Residual* residual = static_cast<const Residual*>(gemm.residual) +
                               at.batch * gemm.residual_batch + at.row() * gemm.residual_ld +
                               at.column();
    if constexpr (!kSwapped)
      return load_pair<kWhole>(residual, rows > 0 ? gemm.n - at.column() : 0);
    return {rows > 0 ? to_float(residual[0]) : 0.0f,
            rows > 1 ? to_float(residual[gemm.residual_ld]) : 0.0f};
  }

  // Writes one box of the tile at `at` to the output; called after a barrier of the group.
  __device__ __forceinline__ void write_out(u32 box, int row, int column,
                                            const TilePosition& at) const {
    const GemmParams& gemm = params_.gemm;
    int row_end = row_end_of<Config::kGrouping>(gemm, at);
    if constexpr (!kWholeSlabs) row_end = min(row_end, at.column + Shape::kOutputN);
    if constexpr (Config::kStores != Access::elements && !kGrouped<Config>) {
      // Behind the rows of a slab that is not whole are those of the next tile.
      if (!kWholeSlabs && row + Slab::kBoxRows > at.column + Shape::kOutputN) {
        return write_rows(box, row, row_end, column, at.batch);
      }
      if (leads()) store_box(params_.out, box, column, row, at.batch);
    } else if constexpr (Config::kStores != Access::elements) {
      // The rows behind a group's are another's, or must stay as they are.
      if (row + Slab::kBoxRows > row_end) return write_rows(box, row, row_end, column, at.batch);
      if (leads()) store_box(params_.out, box, column, row, gemm.out_batch == 0 ? 0 : at.batch);
    } else {
      constexpr int kColumns = Slab::kColumns, kChunk = 16 / static_cast<int>(sizeof(Output));
      const int own = threadIdx.x % kColumns;
      if (column + own >= gemm.n) return;
      // Bytes are copied as such, whatever they stand for.
      using Stored = conditional<sizeof(Output) == 1, u8, Output>;
      Stored* out = static_cast<Stored*>(gemm.out) + at.batch * gemm.out_batch + column + own;
#pragma unroll 4
      for (int i = threadIdx.x % 128 / kColumns; i < Slab::kBoxRows; i += 128 / kColumns) {
        const u32 source =
            box + Slab::Rows::offset(i, own / kChunk) + own % kChunk * sizeof(Output);
        if (row + i < row_end) out[(row + i) * gemm.out_ld] = load_shared<Stored>(source);
      }
    }
  }

  // Writes the rows of a box that lie before `row_end`, 16 bytes at a time.
  __device__ __forceinline__ void write_rows(u32 box, int row, int row_end, int column,
                                             int batch) const {
    constexpr int kChunks = Slab::kRowBytes / 16, kChunk = Slab::kColumns / kChunks;
    const GemmParams& gemm = params_.gemm;
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    if (column + chunk * kChunk >= gemm.n) return;
    Output* out = static_cast<Output*>(gemm.out) + batch * gemm.out_batch + column + chunk * kChunk;
#pragma unroll 2
    for (int i = threadIdx.x % 128 / kChunks; i < Slab::kBoxRows; i += 128 / kChunks) {
      if (row + i >= row_end) return;
      *reinterpret_cast<float4*>(out + (row + i) * gemm.out_ld) =
          load_shared_16(box + Slab::Rows::offset(i, chunk));
    }
  }

  const GemmSm90Params<TensorMap>& params_;
  u32 slabs_, barrier_, turn_ = 0;
  int first_row_;
  BiasTile<Config> bias_;
  ResidualTile<Config> residual_;
  PairScales<Config> scales_;
};

}  // namespace kiln
