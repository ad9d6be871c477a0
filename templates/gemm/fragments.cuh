// Reads the operand fragments of mma.sync from a tile in shared memory.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/base/mma.cuh"
#include "/kiln/gemm/tile.cuh"

namespace kiln {

// Loads a warp's kExtent rows of A or columns of B. A tensor-core step covers 32 bytes of K: 16
// elements of 16 bits or 8 of tf32. A fragment covers 16 rows of A or 16 columns of B:
//   A: r[0..1] = rows 0-7 and 8-15 of the first half of K, r[2..3] = of the second half
//   B: r[0..1] = first and second half of K of columns 0-7, r[2..3] = of columns 8-15
// Both therefore read four 8 x 8 matrices and differ only in the order of the matrices.
template <class Tile, bool kIsA, int kExtent>
class FragmentLoader {
 public:
  static constexpr int kCount = kExtent / 16;

  // `first` is the warp's first row of A or column of B in the tile.
  __device__ __forceinline__ FragmentLoader(int first, int lane) {
    const int matrix = lane / 8;  // this lane gives ldmatrix the address of one of its rows
    const int mn_half = kIsA ? matrix % 2 : matrix / 2;
    const int k_half = kIsA ? matrix / 2 : matrix % 2;
    int row, chunk, byte = 0;
    if constexpr (Tile::kWords) {
      row = lane % 4;
      chunk = first / 4 + lane / 16;
      byte = lane / 4 % 4 * 4;
    } else if constexpr (Tile::kKMajor) {
      row = first + mn_half * 8 + lane % 8;
      chunk = k_half;
    } else {
      row = k_half * 8 + lane % 8;
      chunk = first / 8 + mn_half;
    }
    row_offset_ = row * Layout::kRowBytes + byte;
    chunk_offset_ = chunk * 16;
    mix_ = Layout::offset(row, 0) - row * Layout::kRowBytes;
  }

  // Reads the fragments of step `step` of the tile at `stage` in shared memory. The caller must
  // round() them before it multiplies them.
  __device__ __forceinline__ void load(u32 (&fragments)[kCount][4], u32 stage, int step) const {
    const u32 base = shared_address(shared_memory()) + stage + row_offset_;
    const u32 k_major = Tile::kKMajor ? base + (opaque(chunk_offset_ ^ mix_) ^ (step * 32)) : 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (Tile::kWords) {
        load_words(fragments[i], base, step, i);
      } else if constexpr (Tile::kKMajor) {
        load_matrix_x4(fragments[i], k_major + i * 16 * Layout::kRowBytes);
      } else {
        load_matrix_x4_transposed(fragments[i],
                                  base + step * 16 * Layout::kRowBytes + chunk_offset(i * 2));
      }
    }
  }

  __device__ __forceinline__ static void round(u32 (&fragments)[kCount][4]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) round(fragments, i);
  }
  __device__ __forceinline__ static void round(u32 (&fragments)[kCount][4], int i) {
    if constexpr (sizeof(typename Tile::Element) == 4) {
#pragma unroll
      for (u32& word : fragments[i]) word = to_tf32(word);
    }
  }

 private:
  using Layout = typename Tile::Layout;
  // If true, `chunks` below has no set bits in common with the lane's chunk. One XOR then replaces
  // an addition and an XOR, and addresses take far fewer registers.
  static constexpr bool kDisjoint = (kExtent & (kExtent - 1)) == 0;

  // Returns the offset of the chunk that lies `chunks` after this lane's.
  __device__ __forceinline__ u32 chunk_offset(int chunks) const {
    if constexpr (kDisjoint) return opaque(chunk_offset_ ^ mix_) ^ (chunks * 16);
    return (chunk_offset_ + chunks * 16) ^ mix_;
  }

  __device__ __forceinline__ void load_words(u32 (&fragment)[4], u32 base, int step, int i) const {
#pragma unroll
    for (int mn_half = 0; mn_half < 2; ++mn_half) {
      const u32 at = base + chunk_offset(i * 4 + mn_half * 2);
#pragma unroll
      for (int k_half = 0; k_half < 2; ++k_half) {
        fragment[kIsA ? mn_half + k_half * 2 : mn_half * 2 + k_half] =
            load_word(at + (step * 8 + k_half * 4) * Layout::kRowBytes);
      }
    }
  }

  u32 row_offset_, chunk_offset_, mix_;  // of this lane, in bytes
};

}  // namespace kiln
