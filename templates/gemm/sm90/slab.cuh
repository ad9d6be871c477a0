// Accumulators reach the output through slabs of shared memory. This file defines which outputs a
// thread's values are and where they lie in a slab.
#pragma once
#include "/kiln/base/quantize.cuh"
#include "/kiln/gemm/sm90/tile.cuh"
#include "/kiln/sm90/warpgroup.cuh"

namespace kiln {

struct OutputPosition {
  int row, column;
};

// A slab holds kTiles accumulator tiles of 64 x 8 as kBoxes swizzled boxes of the output, each of
// kBoxRows rows of kRowBytes. A thread has kValues values of each tile: values[tile][2 * half + i]
// are its accumulators in wgmma's order, or the results computed from them.
//
// Two neighbours in a row of an 8-bit output are stored together, and single ones where the product
// is transposed.
//
// This slab is used if the product is the output itself. It has 64 rows of 128, 64 or 32 bytes, the
// largest of these that divides the tile's row.
template <class Output, int kBlockN, bool kShared>
struct UprightSlab {
  static constexpr int kRowBytes = gemm_sm90_slab_row_bytes(kBlockN, sizeof(Output), kShared);
  static constexpr int kColumns = kRowBytes / static_cast<int>(sizeof(Output));  // of a box
  using Rows = SwizzledRows<kRowBytes / 16>;
  static constexpr int kTiles = kColumns / 8, kValues = 4;
  static constexpr int kSlabs = ceil_div(kBlockN / 8, kTiles);
  static constexpr int kBoxes = 1, kBoxRows = 64;
  static_assert(kBlockN % kColumns == 0,
                "gemm sm_90a: kBlockN must be a multiple of 32 bytes of the output");

  // Returns the place of a thread's value `2 * half + i` of `tile`, from the slab's first output.
  __device__ __forceinline__ static OutputPosition position(u32 thread, int tile, int half, int i) {
    const int lane = thread % 32;
    return {warp_row(thread) + half * 8 + lane / 4, tile * 8 + lane % 4 * 2 + i};
  }

  __device__ __forceinline__ static void write(u32 thread, u32 slab,
                                               const float (&values)[kTiles][4]) {
    const int lane = thread % 32;
    if constexpr (sizeof(Output) == 2) {
      const int row = warp_row(thread) + lane % 16;  // this lane gives stmatrix this row's address
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        store_matrix_x4(slab + Rows::offset(row, j + lane / 16),
                        pack2<Output>(values[j][0], values[j][1]),
                        pack2<Output>(values[j][2], values[j][3]),
                        pack2<Output>(values[j + 1][0], values[j + 1][1]),
                        pack2<Output>(values[j + 1][2], values[j + 1][3]));
      }
    } else if constexpr (sizeof(Output) == 1) {
#pragma unroll
      for (int i = 0; i < kTiles * 2; ++i) {
        const OutputPosition at = position(thread, i / 2, i % 2, 0);
        const float* pair = &values[i / 2][i % 2 * 2];
        store_shared_2(slab + Rows::offset(at.row, at.column / 16) + at.column % 16,
                       quantize2<Output, true>(pair[0], pair[1]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTiles * 2; ++i) {
        const int row = warp_row(thread) + lane / 4 + i % 2 * 8, chunk = i / 2 * 2 + lane % 4 / 2;
        store_shared_8(slab + Rows::offset(row, chunk) + lane % 2 * 8, values[i / 2][i % 2 * 2],
                       values[i / 2][i % 2 * 2 + 1]);
      }
    }
  }

 private:
  __device__ __forceinline__ static int warp_row(u32 thread) { return thread % 128 / 32 * 16; }
};

// Writes the 8-bit outputs of a transposed slab of one box, which have their neighbours in other
// lanes.
template <class Slab, class Output, int kTiles, int kValues>
__device__ __forceinline__ void store_bytes(u32 thread, u32 slab,
                                            const float (&values)[kTiles][kValues]) {
#pragma unroll
  for (int i = 0; i < kTiles * kValues; i += 2) {
    const int tile = i / kValues, value = i % kValues;
    const OutputPosition at = Slab::position(thread, tile, value / 2, 0);
    const u32 pair = quantize2<Output, true>(values[tile][value], values[tile][value + 1]);
    const int chunk = at.column / 16, place = at.column % 16;
    store_shared_1(slab + Slab::Rows::offset(at.row, chunk) + place, pair & 0xff);
    store_shared_1(slab + Slab::Rows::offset(at.row + 1, chunk) + place, pair >> 8);
  }
}

// Used if the product is the output transposed: its 64 rows are columns of the output.
template <class Output, int kBlockN, bool kSplits, bool kShared>
struct TransposedSlab {
  static constexpr int kRowBytes = gemm_sm90_transposed_row_bytes(sizeof(Output));
  static constexpr int kColumns = kRowBytes / static_cast<int>(sizeof(Output));
  static constexpr int kBoxes = 64 / kColumns;
  using Rows = SwizzledRows<kRowBytes / 16>;
  static constexpr int kFit = 64 / kBoxes;  // rows of the output that fit
  static constexpr int kBoxRows = gemm_sm90_transposed_rows(kBlockN, kFit, kSplits, kShared);
  static constexpr int kTiles = kBoxRows / 8, kValues = 4;
  static constexpr int kSlabs = ceil_div(kBlockN, kBoxRows);  // the last may hold fewer rows
  static_assert(kBoxRows <= kBlockN && (!kSplits || kBlockN % kBoxRows == 0),
                "gemm sm_90a: kBlockN of a swapped tile must be 16, 32, 48, or 64 and more, and a "
                "multiple of 16 if parts of K are added up");

  __device__ __forceinline__ static OutputPosition position(u32 thread, int tile, int half, int i) {
    const int lane = thread % 32;
    return {tile * 8 + lane % 4 * 2 + i, warp(thread) * 16 + half * 8 + lane / 4};
  }

  __device__ __forceinline__ static void write(u32 thread, u32 slab,
                                               const float (&values)[kTiles][4]) {
    const int lane = thread % 32;
    if constexpr (sizeof(Output) == 2) {
      // Lane l gives the address of row l % 8 of matrix l / 8: halves 0 and 1 of tile j, then those
      // of tile j + 1.
      const int row = lane / 16 * 8 + lane % 8, chunk = warp(thread) * 2 + lane / 8 % 2;
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        store_matrix_x4_transposed(slab + Rows::offset(j * 8 + row, chunk),
                                   pack2<Output>(values[j][0], values[j][1]),
                                   pack2<Output>(values[j][2], values[j][3]),
                                   pack2<Output>(values[j + 1][0], values[j + 1][1]),
                                   pack2<Output>(values[j + 1][2], values[j + 1][3]));
      }
    } else if constexpr (sizeof(Output) == 1) {
      store_bytes<TransposedSlab, Output>(thread, slab, values);
    } else {
#pragma unroll
      for (int i = 0; i < kTiles * 4; ++i) {
        const OutputPosition at = position(thread, i / 4, i % 4 / 2, i % 2);
        const u32 box = slab + at.column / kColumns * kBoxRows * 128;
        const int chunk = at.column % kColumns / 4;
        store_shared_4(box + Rows::offset(at.row, chunk) + at.column % 4 * 4, values[i / 4][i % 4]);
      }
    }
  }

 private:
  __device__ __forceinline__ static int warp(u32 thread) { return thread % 128 / 32; }
};

// Used for transposed gated outputs: the 64 rows of the product are 32 columns of the output.
template <class Output, int kBlockN, bool kSplits, bool kShared>
struct GatedTransposedSlab {
  static constexpr int kColumns = 32, kBoxes = 1;
  static constexpr int kRowBytes = kColumns * static_cast<int>(sizeof(Output));
  using Rows = SwizzledRows<kRowBytes / 16>;
  static constexpr int kBoxRows = gemm_sm90_transposed_rows(kBlockN, 64, kSplits, kShared);
  static constexpr int kTiles = kBoxRows / 8, kValues = 2;
  static constexpr int kSlabs = ceil_div(kBlockN, kBoxRows);  // the last may hold fewer rows
  static_assert(kBoxRows <= kBlockN && (!kSplits || kBlockN % kBoxRows == 0),
                "gemm sm_90a: kBlockN of a swapped tile must be 16, 32, 48, or 64 and more, and a "
                "multiple of 16 if parts of K are added up");

  __device__ __forceinline__ static OutputPosition position(u32 thread, int tile, int /*half*/,
                                                            int i) {
    const int lane = thread % 32;
    return {tile * 8 + lane % 4 * 2 + i, warp(thread) * 8 + lane / 4};
  }

  __device__ __forceinline__ static void write(u32 thread, u32 slab,
                                               const float (&values)[kTiles][kValues]) {
    if constexpr (sizeof(Output) == 2) {
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        // Lanes 0 to 15 give the addresses of rows of the output.
        store_matrix_x2_transposed(slab + Rows::offset(j * 8 + thread % 16, warp(thread)),
                                   pack2<Output>(values[j][0], values[j][1]),
                                   pack2<Output>(values[j + 1][0], values[j + 1][1]));
      }
    } else if constexpr (sizeof(Output) == 1) {
      store_bytes<GatedTransposedSlab, Output>(thread, slab, values);
    } else {
#pragma unroll
      for (int i = 0; i < kTiles * 2; ++i) {
        const OutputPosition at = position(thread, i / 2, 0, i % 2);
        store_shared_4(slab + Rows::offset(at.row, at.column / 4) + at.column % 4 * 4,
                       values[i / 2][i % 2]);
      }
    }
  }

 private:
  __device__ __forceinline__ static int warp(u32 thread) { return thread % 128 / 32; }
};

}  // namespace kiln
