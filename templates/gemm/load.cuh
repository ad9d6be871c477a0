// Copies K-tiles of one operand from global to shared memory. What lies outside the matrix is
// filled with zeros and never read.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/gemm/tile.cuh"

namespace kiln {

__device__ __forceinline__ void copy_async_4(u32 destination, const void* source, int valid_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(destination), "l"(source),
               "r"(valid_bytes)
               : "memory");
}

// Threads form a grid of kThreadRows x kThreadColumns chunks, which steps over the tile.
template <class Tile, int kThreads, bool kAligned>
class TileLoader {
 public:
  using Element = typename Tile::Element;
  // cp.async copies 4, 8 or 16 aligned bytes; else the elements pass through registers.
  static constexpr bool kAsync = kAligned || sizeof(Element) == 4;

  // `matrix` is the operand of this batch entry, `ld` its other stride, and `first` the tile's
  // first row of A or column of B, out of `extent`.
  __device__ __forceinline__ TileLoader(const Element* matrix, i64 ld, int first, int extent, int k,
                                        int thread)
      : row_(thread / kThreadColumns), chunk_(thread % kThreadColumns), ld_(ld) {
    const int column = chunk_ * Tile::kChunkElements;
    if constexpr (Tile::kKMajor) {
      source_ = matrix + (first + row_) * ld + column;
      rows_left_ = extent - first - row_;
      columns_left_ = k - column;
    } else {
      source_ = matrix + row_ * ld + first + column;
      rows_left_ = k - row_;
      columns_left_ = extent - first - column;
    }
  }

  // Starts the copy of the next K-tile to `offset` in shared memory. Tiles past the end of K are
  // all zeros.
  __device__ __forceinline__ void load_next(u32 offset) {
    const Element* source = source_;
#pragma unroll(kUnroll)
    for (int row = 0; row < Tile::kRows; row += kThreadRows) {
      if (Tile::kRows % kThreadRows == 0 || row_ + row < Tile::kRows) {
        const int columns_left = row < rows_left_ ? columns_left_ : 0;
#pragma unroll(kUnroll)
        for (int chunk = 0; chunk < Tile::kChunks; chunk += kThreadColumns) {
          const int column = chunk * Tile::kChunkElements;
          copy(offset + Tile::Layout::offset(row_ + row, chunk_ + chunk), source + column,
               columns_left - column);
        }
      }
      source += kThreadRows * ld_;  // not source_ + row * ld_, whose products would fill registers
    }
    if constexpr (Tile::kKMajor) {
      source_ += Tile::kColumns;
      columns_left_ -= Tile::kColumns;
    } else {
      source_ += Tile::kRows * ld_;
      rows_left_ -= Tile::kRows;
    }
  }

 private:
  static constexpr int kElementBytes = sizeof(Element);
  static constexpr int common_divisor(int a, int b) {
    return b == 0 ? a : common_divisor(b, a % b);
  }
  static constexpr int kThreadColumns = common_divisor(Tile::kChunks, kThreads);
  static constexpr int kThreadRows = kThreads / kThreadColumns;
  // Elements that pass through registers must not take those of the accumulators.
  static constexpr int kUnroll = kAsync ? 64 : 1;

  // `count` elements of the chunk exist; it may be negative or more than a chunk holds.
  __device__ __forceinline__ static void copy(u32 offset, const Element* source, int count) {
    const u32 destination = shared_address(shared_memory()) + offset;
    if constexpr (kAligned) {
      copy_async_16(destination, source, min(max(count, 0), Tile::kChunkElements) * kElementBytes);
    } else if constexpr (kAsync) {
#pragma unroll
      for (int i = 0; i < Tile::kChunkElements; ++i) {
        copy_async_4(destination + i * 4, source + i, i < count ? 4 : 0);
      }
    } else {
      alignas(16) Element chunk[Tile::kChunkElements];
#pragma unroll
      for (int i = 0; i < Tile::kChunkElements; ++i) chunk[i] = i < count ? source[i] : Element{};
      *reinterpret_cast<uint4*>(shared_memory() + offset) = *reinterpret_cast<uint4*>(chunk);
    }
  }

  int row_, chunk_;
  i64 ld_;
  const Element* source_;         // this thread's first chunk of the next K-tile
  int rows_left_, columns_left_;  // of the matrix, from `source_` on
};

}  // namespace kiln
