// Loads a tile of rows from global into swizzled shared memory.
#pragma once
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/copy.cuh"
#include "/kiln/base/layout.cuh"

namespace kiln {

// kDim elements of 16 bits a row, padded in shared memory to whole tensor-core steps.
template <int kRows_, int kDim_, int kThreads_, bool kAligned_>
struct TileShape {
  static constexpr int kRows = kRows_;
  static constexpr int kDim = kDim_;
  static constexpr int kThreads = kThreads_;
  static constexpr bool kAligned = kAligned_;
  static constexpr int kChunks = round_up(kDim, 16) / 8;
  using Layout = SwizzledRows<kChunks>;
};

// Starts the copy of one 16-byte chunk, or writes zeros. Chunks of an unaligned row are gathered
// element by element and have arrived on return.
template <bool kAligned, class Element>
__device__ __forceinline__ void load_chunk(u32 destination, const Element* source, bool valid) {
  if constexpr (kAligned) {
    copy_async_16(destination, source, valid ? 16 : 0);
  } else {
    u32 words[4] = {0, 0, 0, 0};
    if (valid) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = source[2 * i].bits | static_cast<u32>(source[2 * i + 1].bits) << 16;
      }
    }
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(destination), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }
}

// Rows first .. first + kRows - 1, of which those outside of `valid` and the padding columns are
// zeros and never read: they may hold NaN, and 0 * NaN is not 0. `row_pointer(row, ahead)` is the
// address of row + ahead; `ahead` is a constant, the same in all threads, which addressing by
// strides exploits: one product per thread and tile instead of one per row.
template <class Shape, class RowPointer>
__device__ __forceinline__ void load_tile(u32 tile, int first, Range valid,
                                          RowPointer row_pointer) {
  // As many threads share a row as fill a 128-byte line, or fewer, so that their number divides its
  // chunks: then a thread stays in its columns, and needs few addresses to keep in registers.
  constexpr int kSharing = Shape::kChunks % 8 == 0 ? 8 : Shape::kChunks & -Shape::kChunks;
  constexpr int kRowStep = Shape::kThreads / kSharing;
  const int column = threadIdx.x % kSharing;
  const int first_row = threadIdx.x / kSharing;
#pragma unroll
  for (int i = 0; i < ceil_div(Shape::kRows, kRowStep); ++i) {
    const int row = first_row + i * kRowStep;
    if (Shape::kRows % kRowStep != 0 && row >= Shape::kRows) break;
    const bool row_valid = valid.contains(first + row);
    const auto* source = row_pointer(first + first_row, i * kRowStep);
#pragma unroll
    for (int j = 0; j < Shape::kChunks / kSharing; ++j) {
      const int chunk = column + j * kSharing;
      load_chunk<Shape::kAligned>(tile + Shape::Layout::offset(row, chunk), source + chunk * 8,
                                  row_valid && chunk * 8 < Shape::kDim);
    }
  }
}

}  // namespace kiln
