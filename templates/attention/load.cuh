// Loads a tile of rows from global memory into swizzled shared memory.
#pragma once
#include "/kiln/attention/variant.cuh"
#include "/kiln/base/copy.cuh"
#include "/kiln/base/layout.cuh"

namespace kiln {

// A tile of rows of kDim elements, of 16 bits mostly, padded in shared memory to whole tensor-core
// steps. kThreads threads copy it together.
template <int kRows_, int kDim_, int kThreads_, bool kAligned_, int kElementBytes = 2>
struct TileShape {
  static constexpr int kRows = kRows_;
  static constexpr int kDim = kDim_;
  static constexpr int kThreads = kThreads_;
  static constexpr bool kAligned = kAligned_;
  static constexpr int kPerChunk = 16 / kElementBytes;
  static constexpr int kChunks = round_up(kDim, 16) / kPerChunk;
  using Layout = SwizzledRows<kChunks>;
  static constexpr u32 kBytes = kRows * Layout::kRowBytes;
};

// Starts the copy of one 16-byte chunk of which `count` elements exist, all or none of 16-bit ones;
// zeros take the place of the others. Chunks of an unaligned row are gathered element by element
// and have arrived on return.
template <bool kAligned, class Element>
__device__ __forceinline__ void load_chunk(u32 destination, const Element* source, int count) {
  if constexpr (kAligned) {
    copy_async_16(destination, source, count * static_cast<int>(sizeof(Element)));
  } else {
    u32 words[4] = {0, 0, 0, 0};
    if constexpr (sizeof(Element) == 1) {
      const u8* const bytes = reinterpret_cast<const u8*>(source);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (i < count) words[i / 4] |= static_cast<u32>(bytes[i]) << i % 4 * 8;
      }
    } else if (count != 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = source[2 * i].bits | static_cast<u32>(source[2 * i + 1].bits) << 16;
      }
    }
    store_shared_16(destination, {words[0], words[1], words[2], words[3]});
  }
}

// Loads rows first .. first + kRows - 1. Rows outside of `valid` and padding columns become zeros
// and are never read: they may hold NaN, and 0 * NaN is not 0. `rows` walks over the rows in
// memory: seek(row) goes to a row, skip(count) advances, `pointer` is the current row. `thread` is
// the index among the threads that load this tile.
template <class Shape, class Rows>
__device__ __forceinline__ void load_tile(u32 tile, int first, Range valid, int thread, Rows rows) {
  // Up to 8 threads share a row, a 128-byte line. Their number divides its chunks, so that a thread
  // stays in its columns and keeps few addresses in registers.
  constexpr int kSharing = Shape::kChunks % 8 == 0 ? 8 : Shape::kChunks & -Shape::kChunks;
  constexpr int kRowStep = Shape::kThreads / kSharing;
  const int column = thread % kSharing;
  const int first_row = thread / kSharing;
  // An unaligned load passes through registers; unrolled, it would take those of the accumulators.
  constexpr int kUnroll = Shape::kAligned ? 64 : 1;
  // The column is part of the base where it makes addresses shorter: of a row's chunks, they then
  // differ by what an instruction adds. Other tiles have no registers for it.
  constexpr bool kShifts = Shape::kPerChunk == 16 || Shape::kThreads == 32;
  if constexpr (kShifts) rows.shift(column * Shape::kPerChunk);
  rows.seek(first + first_row);
#pragma unroll(kUnroll)
  for (int i = 0; i < ceil_div(Shape::kRows, kRowStep); ++i) {
    const int row = first_row + i * kRowStep;
    if (Shape::kRows % kRowStep != 0 && row >= Shape::kRows) break;
    const bool row_valid = valid.contains(first + row);
#pragma unroll(kUnroll)
    for (int j = 0; j < Shape::kChunks / kSharing; ++j) {
      const int chunk = column + j * kSharing;
      constexpr int kCount = Shape::kPerChunk;
      const int left = Shape::kDim - chunk * kCount;
      const int count = Shape::kDim % kCount == 0 ? (left > 0 ? kCount : 0) : min(left, kCount);
      load_chunk<Shape::kAligned>(tile + Shape::Layout::offset(row, chunk),
                                  rows.pointer + (kShifts ? j * kSharing : chunk) * kCount,
                                  row_valid ? max(count, 0) : 0);
    }
    rows.skip(kRowStep);
  }
}

// Negates every element of a tile that has arrived.
template <class Shape>
__device__ __forceinline__ void negate_tile(u8* tile, int thread) {
  for (u32 i = thread * 4; i < Shape::kBytes; i += Shape::kThreads * 4) {
    *reinterpret_cast<u32*>(tile + i) ^= 0x80008000u;
  }
}

}  // namespace kiln
