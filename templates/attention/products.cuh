// The two matrix products of a warp from shared memory: scores = Q K^T and out += weights V.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/base/frag.cuh"
#include "/kiln/base/layout.cuh"
#include "/kiln/base/mma.cuh"

namespace kiln {

// This lane's ldmatrix addresses for a tile in SwizzledRows. `row` and `half` (0 or 1) are the
// lane's own; at() moves by whole 8-row groups and even chunks, both constants. An address costs
// one XOR and no register, as the rest is the instruction's immediate offset.
template <class Layout>
struct LaneChunks {
  u32 base;

  __device__ __forceinline__ LaneChunks(u32 tile, int row, int half)
      : base(tile + Layout::offset(row, half)) {}
  __device__ __forceinline__ u32 at(int rows, int chunk) const {
    const int mixed = chunk & Layout::kMask;
    return (base ^ (mixed * 16)) + (chunk - mixed) * 16 + rows * Layout::kRowBytes;
  }
};

// `q` and `k` are the shared addresses of the tiles; the warp's rows start at `tile_row`.
template <class Element, class QLayout, class KLayout, class Map>
__device__ __forceinline__ void multiply_qk(Fragment<Map>& scores, u32 q, u32 k, int tile_row) {
  constexpr int kSteps = QLayout::kRowBytes / 32;
  const int lane = threadIdx.x % 32;
  // Q never moves, so without opaque() the compiler would keep all its addresses in registers.
  const LaneChunks<QLayout> q_lane(opaque(q), tile_row + lane % 16, lane / 16);
  const LaneChunks<KLayout> k_lane(k, lane / 16 * 8 + lane % 8, lane / 8 % 2);
  scores.clear();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    u32 a[Map::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Map::kRowTiles; ++m) {
      load_matrix_x4(a[m], q_lane.at(m * 16, step * 2));
    }
#pragma unroll
    for (int n = 0; n < Map::kColTiles; n += 2) {
      u32 b[4];
      load_matrix_x4(b, k_lane.at(n * 8, step * 2));
#pragma unroll
      for (int m = 0; m < Map::kRowTiles; ++m) {
        mma_16816<Element>(scores.block[m][n], a[m], b[0], b[1]);
        mma_16816<Element>(scores.block[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// `weights` are rounded to the element type. The accumulators of the first product already have the
// register layout of the second product's A operand.
template <class Element, class VLayout, class Map, class OutMap>
__device__ __forceinline__ void multiply_pv(Fragment<OutMap>& out, const Fragment<Map>& weights,
                                            u32 v) {
  const int lane = threadIdx.x % 32;
  const LaneChunks<VLayout> v_lane(v, lane % 16, lane / 16);
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
      load_matrix_x4_transposed(b, v_lane.at(k * 8, n));
#pragma unroll
      for (int m = 0; m < Map::kRowTiles; ++m) {
        mma_16816<Element>(out.block[m][n], a[m], b[0], b[1]);
        mma_16816<Element>(out.block[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Stores the warp's weights of its share of a tile's keys, rounded, into a tile of all warps in
// shared memory. The warp's rows start at `row` and its keys at `column`.
template <class Element, class Layout, class Map>
__device__ __forceinline__ void store_weights(u32 tile, const Fragment<Map>& weights, int row,
                                              int column) {
#pragma unroll
  for (int i = 0; i < Map::kRows; ++i) {
    const int lane_row = row + Map::row(i);
#pragma unroll
    for (int c = 0; c < Map::kColTiles; ++c) {
      const float (&block)[4] = weights.block[i / 2][c];
      const u32 address = tile + Layout::offset(lane_row, column / 8 + c) + threadIdx.x % 4 * 4;
      store_word(address, pack2<Element>(block[i % 2 * 2], block[i % 2 * 2 + 1]));
    }
  }
}

// Computes out += weights V with such a tile of kKeys keys. `v` is the address of the first column
// of the warp's output in V: whole swizzle periods lie before it, so that chunks are laid out as at
// the start of a row.
template <class Element, class WeightLayout, class VLayout, int kKeys, class OutMap>
__device__ __forceinline__ void multiply_stored_pv(Fragment<OutMap>& out, u32 weights, int row,
                                                   u32 v) {
  const int lane = threadIdx.x % 32;
  const LaneChunks<WeightLayout> weight_lane(weights, row + lane % 16, lane / 16);
  const LaneChunks<VLayout> v_lane(v, lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < kKeys / 8; k += 2) {
    u32 a[OutMap::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < OutMap::kRowTiles; ++m) load_matrix_x4(a[m], weight_lane.at(m * 16, k));
#pragma unroll
    for (int n = 0; n < OutMap::kColTiles; n += 2) {
      u32 b[4];
      load_matrix_x4_transposed(b, v_lane.at(k * 8, n));
#pragma unroll
      for (int m = 0; m < OutMap::kRowTiles; ++m) {
        mma_16816<Element>(out.block[m][n], a[m], b[0], b[1]);
        mma_16816<Element>(out.block[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

}  // namespace kiln
