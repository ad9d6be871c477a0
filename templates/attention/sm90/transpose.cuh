// The warps that transpose values of one byte: wgmma takes bytes along K alone, and the K of the
// second product are keys.
//
//   rows --copy engine--> raw stages, [keys][columns] --transposed--> V stages, [columns][keys]
//
// ldmatrix transposes pairs of bytes as if they were 16-bit elements: a lane then has columns 2g
// and 2g + 1 of keys 2t and 2t + 1, and of 2t + 8 and 2t + 9. The bytes of one column are put
// together, so that of 16 keys, column by column, these four are neighbours:
//
//   place     0 1 2 3   4 5 6 7    8  9 10 11   12 13 14 15
//   key       0 1 8 9   2 3 10 11  4  5 12 13    6  7 14 15
//
// That is the order in which a lane has its weights, see KeyLoop::pack().
#pragma once
#include "/kiln/attention/sm90/walk.cuh"
#include "/kiln/base/mma.cuh"

namespace kiln {

// Transposes one warp's share of a tile, every kTransposingWarps-th block of 16 columns. Called by
// a whole warp.
template <class Config>
__device__ __forceinline__ void transpose_tile(u32 warp, u32 raw, u32 values) {
  using Shape = AttentionSm90Shape<Config>;
  constexpr int kKeyBlocks = Shape::kBlockKv / 32;
  constexpr int kColumnBlocks = ceil_div(Config::kHeadDimV, 16);
  // So many blocks of 32 keys are read before the first is written.
  constexpr int kTogether = kKeyBlocks % 3 == 0 ? 3 : 2;
  const u32 lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
  // Lanes of the lower half write column 2g first and those of the upper half 2g + 1, so that the
  // eight rows of a matrix lie in different banks.
  const u32 first = lane < 16 ? 0x6420 : 0x7531, second = first ^ 0x1111;
  const u32 column = 2 * row + ((matrix ^ row / 4) & 1);
  const u32 from = raw + lane * 128 + row * 16;
  const u32 to = values + column * 128 + (column % 8 ^ matrix / 2) * 16;
#pragma unroll 1
  for (u32 block = warp; block < kColumnBlocks; block += Shape::kTransposingWarps) {
    const u32 source = (from ^ block % 8 * 16) + block / 8 * Shape::kKvSlabBytes;
    const u32 target = to + block * 16 * 128;
#pragma unroll
    for (int begin = 0; begin < kKeyBlocks; begin += kTogether) {
      u32 pairs[kTogether][4];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (begin + i < kKeyBlocks) {
          load_matrix_x4_transposed(pairs[i], source + (begin + i) * 32 * 128);
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int keys = begin + i;
        if (keys >= kKeyBlocks) continue;
        const u32(&p)[4] = pairs[i];
        store_matrix_x4((target ^ keys % 4 * 32) + keys / 4 * Shape::kVSlabBytes,
                        __byte_perm(p[0], p[1], first), __byte_perm(p[0], p[1], second),
                        __byte_perm(p[2], p[3], first), __byte_perm(p[2], p[3], second));
      }
    }
  }
}

// The values of all tiles, which load_tiles() copies. `warp` counts the transposing warps.
template <class Config>
__device__ __forceinline__ void transpose_values(u32 warp) {
  using Shape = AttentionSm90Shape<Config>;
  const auto raw_ring = Shape::raw_ring();
  const auto ring = Shape::v_ring();
  auto raw_at = Shape::RawRing::consumer();
  auto at = Shape::KvRing::producer();
  const bool leads = threadIdx.x % 32 == 0;
  WalkReader<Config> walk(0);
#pragma unroll 1
  while (walk.next_query_tile()) {
#pragma unroll 1
    while (walk.next().exists) {
      wait(raw_ring.full(raw_at.stage), raw_at.parity);
      wait(ring.empty(at.stage), at.parity);
      transpose_tile<Config>(warp, Shape::raw_v(raw_at.stage), Shape::v(at.stage));
      fence_async_proxy();
      __syncwarp();
      if (leads) {
        arrive(ring.full(at.stage));
        arrive(raw_ring.empty(raw_at.stage));
      }
      __syncwarp();
      raw_at.advance();
      at.advance();
    }
  }
}

}  // namespace kiln
