// Copies K-tiles of one operand from global to shared memory. Elements outside the matrix are never
// read and become zeros.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/gemm/copy.cuh"
#include "/kiln/gemm/tile.cuh"

namespace kiln {

// The threads form a grid of kThreadRows x kThreadColumns chunks, which steps over the tile.
//
// kHalves is set for b of a gated epilogue whose second half of columns holds the partners of the
// first. A tile then alternates between the halves: by column if K is contiguous, else by chunk of
// columns. A thread stays in one half, so its steps through the tile are as regular as without.
template <class Tile, int kThreads, bool kAligned, bool kHalves = false>
class TileLoader {
 public:
  using Element = typename Tile::Element;
  // cp.async copies 4, 8 or 16 aligned bytes; unaligned 16-bit elements pass through registers.
  static constexpr bool kAsync = kAligned || sizeof(Element) == 4;

  // `matrix` is the operand of this batch entry, `ld` the stride of its dimension that is not
  // contiguous and `first` the tile's first row of A or column of B, out of `extent`; with kHalves
  // both count gates and partners. The tiles cover K from `k_begin` up to `k_end`.
  __device__ __forceinline__ TileLoader(const Element* matrix, i64 ld, int first, int extent,
                                        int k_begin, int k_end, int thread)
      : row_(thread / kThreadColumns),
        chunk_(thread % kThreadColumns),
        step_(kRowStep / (Tile::kKMajor ? kFactor : 1) * ld) {
    const int half = (Tile::kKMajor ? row_ : chunk_) % kFactor * (extent / kFactor);
    if constexpr (Tile::kKMajor) {
      const int column = chunk_ * Tile::kChunkElements;
      source_ = matrix + ((first + row_) / kFactor + half) * ld + k_begin + column;
      rows_left_ = extent - first - row_;
      columns_left_ = k_end - k_begin - column;
      next_tile_ = Tile::kColumns - kRowSteps * step_;
    } else {
      const int column = first / kFactor + chunk_ / kFactor * Tile::kChunkElements;
      source_ = matrix + (k_begin + row_) * ld + half + column;
      rows_left_ = k_end - k_begin - row_;
      columns_left_ = extent / kFactor - column;
      next_tile_ = 0;
    }
    destination_ = shared_address(shared_memory()) + Tile::Layout::offset(row_, chunk_);
  }

  // Starts part `part` of `parts` of the copy of the next K-tile to `offset` in shared memory. All
  // parts must be started, in order, and both numbers must be constants after unrolling. Tiles past
  // the end of K are all zeros.
  __device__ __forceinline__ void load_part(u32 offset, int part, int parts) {
    constexpr int kCopies = kRowSteps * kChunkSteps;
#pragma unroll(kUnroll)
    for (int i = 0; i < kCopies; ++i) {
      if (i * parts / kCopies == part) load_chunk(offset, i / kChunkSteps, i % kChunkSteps);
    }
    if (part < parts - 1) return;
    source_ += next_tile_;
    (Tile::kKMajor ? columns_left_ : rows_left_) -= Tile::kKMajor ? Tile::kColumns : Tile::kRows;
  }

 private:
  static constexpr int kElementBytes = sizeof(Element);
  static constexpr int kFactor = kHalves ? 2 : 1;
  static constexpr int common_divisor(int a, int b) {
    return b == 0 ? a : common_divisor(b, a % b);
  }
  static constexpr int kThreadColumns = common_divisor(Tile::kChunks, kThreads);
  static constexpr int kThreadRows = kThreads / kThreadColumns;
  static constexpr int kRowSteps = ceil_div(Tile::kRows, kThreadRows);
  static constexpr int kChunkSteps = Tile::kChunks / kThreadColumns;
  static constexpr int kRowStep = kThreadRows < Tile::kRows ? kThreadRows : Tile::kRows;
  static_assert(Tile::kKMajor || Tile::kRows % kRowStep == 0,
                "gemm: kBlockK must be a multiple of the rows that the threads copy at once");
  static_assert(!kHalves || (Tile::kKMajor ? kRowStep : kThreadColumns) % 2 == 0,
                "gemm: a thread of a gated kernel must stay in one half of b's columns");
  // The layout repeats every 8 rows.
  static constexpr bool kSameChunks = kRowStep % 8 == 0 && kChunkSteps == 1;
  // Element-wise copies are not unrolled: they are too many and must not take registers.
  static constexpr int kUnroll = kAligned ? 64 : 1;

  __device__ __forceinline__ void load_chunk(u32 offset, int row_step, int chunk_step) {
    const int row = row_step * kRowStep, chunk = chunk_step * kThreadColumns;
    // `column` counts elements in memory from the thread's first chunk.
    const int column = chunk / (Tile::kKMajor ? 1 : kFactor) * Tile::kChunkElements;
    if (Tile::kRows % kThreadRows == 0 || row_ + row < Tile::kRows) {
      const u32 destination = kSameChunks ? destination_ + offset + row * Tile::Layout::kRowBytes
                                          : shared_address(shared_memory()) + offset +
                                                Tile::Layout::offset(row_ + row, chunk_ + chunk);
      // The chunk's columns are compared once for all rows, so each copy needs one comparison.
      const int rows = columns_left_ > column ? rows_left_ : 0;
      copy(destination, source_ + column, row < rows ? columns_left_ - column : 0);
    }
    // The pointer advances row by row: offsets of all rows, precomputed, would fill the registers.
    if (chunk_step == kChunkSteps - 1) source_ += step_;
  }

  // Only the first `count` elements of the chunk exist; `count` may be negative or exceed the
  // chunk. With kAligned a chunk exists as a whole or not at all.
  __device__ __forceinline__ static void copy(u32 destination, const Element* source, int count) {
    if constexpr (kAligned) {
      copy_async_16(destination, source, count > 0 ? 16 : 0);
    } else if constexpr (kAsync) {
#pragma unroll
      for (int i = 0; i < Tile::kChunkElements; ++i) {
        copy_async_4(destination + i * 4, source + i, i < count ? 4 : 0);
      }
    } else {
      alignas(16) Element chunk[Tile::kChunkElements];
#pragma unroll
      for (int i = 0; i < Tile::kChunkElements; ++i) chunk[i] = i < count ? source[i] : Element{};
      store_shared_16(destination, *reinterpret_cast<uint4*>(chunk));
    }
  }

  int row_, chunk_;
  u32 destination_;               // address of the first chunk in a stage at 0
  i64 step_;                      // elements between two rows of this thread
  i64 next_tile_;                 // elements from past its last row to the next K-tile
  const Element* source_;         // this thread's next chunk
  int rows_left_, columns_left_;  // of the matrix, from this K-tile's first chunk on
};

}  // namespace kiln
