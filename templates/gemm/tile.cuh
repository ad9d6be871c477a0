// The layout of one operand's tile in shared memory: which dimension runs along its rows, how many
// 16-byte chunks a row has and where each chunk is.
#pragma once
#include "/kiln/base/layout.cuh"

namespace kiln {

enum class Major { k, mn };  // the dimension of an operand that is contiguous in memory

// How a tensor may be read or written: only by elements; by boxes of a tensor map, if base and
// strides are multiples of 16 bytes; or also by 16-byte vectors, if its rows consist of whole ones.
enum class Access { elements, boxes, vectors };

// The layout of rows that are read as 32-bit words: lane 4g + t reads word g of row t. A read
// covers four rows and two chunks, which the XOR with an even number spreads over all 32 banks.
template <int kChunks>
struct SwizzledWords {
  static_assert(kChunks % 4 == 0, "SwizzledWords: a row must be a multiple of 64 bytes");
  static constexpr int kRowBytes = kChunks * 16;

  __device__ __forceinline__ static constexpr u32 offset(int row, int chunk) {
    const int mixed = kChunks % 8 == 0 ? (row & 3) << 1 : row & 2;
    return row * kRowBytes + ((chunk ^ mixed) << 4);
  }
};

template <class ElementType, Major kMajor, int kBlockMn, int kBlockK>
struct OperandTile {
  using Element = ElementType;
  static constexpr bool kKMajor = kMajor == Major::k;
  static constexpr int kChunkElements = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kRows = kKMajor ? kBlockMn : kBlockK;
  static constexpr int kColumns = kKMajor ? kBlockK : kBlockMn;
  static constexpr int kChunks = kColumns / kChunkElements;
  static constexpr int kBytes = kRows * kChunks * 16;
  // ldmatrix transposes only 16-bit elements: tf32 tiles with K along columns are read by words.
  static constexpr bool kWords = !kKMajor && sizeof(Element) == 4;
  using Layout = conditional<kWords, SwizzledWords<kChunks>, SwizzledRows<kChunks>>;
};

__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  return shared_bytes;
}

// Copies the registers of a 16-row slab: sums, or residuals.
template <class Word, int kTiles, int kWords>
__device__ __forceinline__ void copy_accumulators(Word (&to)[kTiles][kWords],
                                                  const Word (&from)[kTiles][kWords]) {
#pragma unroll
  for (int i = 0; i < kTiles * kWords; ++i)
    to[i / kWords][i % kWords] = from[i / kWords][i % kWords];
}

}  // namespace kiln
