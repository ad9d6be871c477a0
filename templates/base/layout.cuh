// The position of a 16-byte chunk of a tile in shared memory.
//
// A tile consists of rows of kChunks 16-byte chunks without padding. Eight rows that ldmatrix reads
// at one chunk column must fall on eight different 16-byte bank groups of the 128-byte bank line.
// Row r starts at group (r * kChunks) mod 8, which takes 8 >> t different values, where 2^t is the
// largest power of two (at most 8) that divides kChunks; the other t bits come from an XOR with the
// row:
//
//   kChunks 8, 16, ..: chunk ^ (row & 7)      kChunks 4, 12, ..: chunk ^ (row / 2 & 3)
//   kChunks 2, 6, ..:  chunk ^ (row / 4 & 1)  odd:               chunk
//
// An XOR with t bits stays inside an aligned group of 2^t chunks and therefore inside the row.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

template <int kChunks>
struct SwizzledRows {
  static constexpr int kShift = kChunks % 8 == 0   ? 0
                                : kChunks % 4 == 0 ? 1
                                : kChunks % 2 == 0 ? 2
                                                   : 3;
  static constexpr int kMask = (8 >> kShift) - 1;
  static constexpr int kRowBytes = kChunks * 16;

  // Byte offset of a chunk from the tile's start.
  __device__ __forceinline__ static constexpr u32 offset(int row, int chunk) {
    return row * kRowBytes + ((chunk ^ ((row >> kShift) & kMask)) << 4);
  }
};

}  // namespace kiln
