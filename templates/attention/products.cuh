// The two matrix products of a warp, from shared memory: scores = Q K^T and out += weights V.
#pragma once
#include "/kiln/base/frag.cuh"
#include "/kiln/base/layout.cuh"
#include "/kiln/base/mma.cuh"

namespace kiln {

// `q` and `k` are the tiles' shared addresses; the warp's rows start at `tile_row`. `sign` holds
// the sign bit of the scale in both halves. The loop over the head dim stays a loop to keep compile
// time down; two steps at once let a load overlap the products before it.
template <class Element, class QLayout, class KLayout, class Map>
__device__ __forceinline__ void multiply_qk(Fragment<Map>& scores, u32 q, u32 k, int tile_row,
                                            u32 sign) {
  constexpr int kSteps = QLayout::kRowBytes / 32;
  const int lane = threadIdx.x % 32;
  const int q_lane_row = tile_row + lane % 16;
  const int k_lane_row = lane / 16 * 8 + lane % 8;
  scores.clear();
#pragma unroll 2
  for (int step = 0; step < kSteps; ++step) {
    u32 a[Map::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Map::kRowTiles; ++m) {
      load_matrix_x4(a[m], q + QLayout::offset(q_lane_row + m * 16, step * 2 + lane / 16));
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] ^= sign;
    }
#pragma unroll
    for (int n = 0; n < Map::kColTiles; n += 2) {
      u32 b[4];
      load_matrix_x4(b, k + KLayout::offset(k_lane_row + n * 8, step * 2 + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < Map::kRowTiles; ++m) {
        mma_16816<Element>(scores.block[m][n], a[m], b[0], b[1]);
        mma_16816<Element>(scores.block[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// `weights` are rounded to the element type; as accumulators of one product they lie just where the
// next one wants its A operand.
template <class Element, class VLayout, class Map, class OutMap>
__device__ __forceinline__ void multiply_pv(Fragment<OutMap>& out, const Fragment<Map>& weights,
                                            u32 v) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < Map::kColTiles; k += 2) {
    u32 a[Map::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Map::kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float (&block)[4] = weights.block[m][k + i / 2];
        a[m][i] = pack2<Element>(block[i % 2 * 2], block[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < OutMap::kColTiles; n += 2) {
      u32 b[4];
      load_matrix_x4_transposed(b, v + VLayout::offset(k * 8 + lane % 16, n + lane / 16));
#pragma unroll
      for (int m = 0; m < Map::kRowTiles; ++m) {
        mma_16816<Element>(out.block[m][n], a[m], b[0], b[1]);
        mma_16816<Element>(out.block[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace kiln
