// The two matrix products of a warp with keys and values of a quantised cache: see products.cuh and
// cache.cuh. ldmatrix moves pairs of bytes as if they were 16-bit elements:
//
//   K   as it is: a lane gets columns 4t to 4t + 3 of key g, the B operand of one step of 16
//       columns in an order of its own, in which the queries are stored too
//   V   transposed: a lane gets columns 2g and 2g + 1 of keys 2t and 2t + 1, of which alternating
//       bytes are the B operands of two tiles of outputs, even and odd columns
#pragma once
#include "/kiln/attention/cache.cuh"
#include "/kiln/attention/products.cuh"

namespace kiln {

// The accumulators of outputs, in pairs of blocks that hold even and odd columns of 16: a lane has
// four neighbouring ones, its columns c, c + 2, c + 1 and c + 3.
template <int kRowTiles, int kColTiles>
struct AlternatingFragMap : FragMap<kRowTiles, kColTiles> {
  static_assert(kColTiles % 2 == 0, "AlternatingFragMap: blocks are paired");
  __device__ __forceinline__ static int col(int c) {
    return (c >> 2) * 16 + (threadIdx.x % 4) * 4 + (c & 1) * 2 + (c >> 1 & 1);
  }
};
template <class Map>
inline constexpr bool is_alternating = false;
template <int kRowTiles, int kColTiles>
inline constexpr bool is_alternating<AlternatingFragMap<kRowTiles, kColTiles>> = true;

template <class Keys, class QLayout, class KLayout, class Map>
__device__ __forceinline__ void multiply_qk_bytes(Fragment<Map>& scores, u32 q, u32 k,
                                                  int tile_row) {
  constexpr int kSteps = KLayout::kRowBytes / 16;
  const int lane = threadIdx.x % 32;
  const LaneChunks<QLayout> q_lane(opaque(q), tile_row + lane % 16, lane / 16);
  const LaneChunks<KLayout> k_lane(k, lane / 16 * 8 + lane % 8, lane / 8 % 2);
  // The last of an odd number of chunks has no neighbour, whose place is another row's.
  const LaneChunks<KLayout> k_last(k, lane / 16 * 8 + lane % 8, 0);
  scores.clear();
#pragma unroll
  for (int step = 0; step < kSteps; step += 2) {
    constexpr int kPair = 2;
    const int count = step + 1 < kSteps ? 2 : 1;
    u32 a[kPair][Map::kRowTiles][4];
#pragma unroll
    for (int i = 0; i < count; ++i) {
#pragma unroll
      for (int m = 0; m < Map::kRowTiles; ++m) {
        load_matrix_x4(a[i][m], q_lane.at(m * 16, (step + i) * 2));
      }
    }
#pragma unroll
    for (int n = 0; n < Map::kColTiles; n += 2) {
      u32 bytes[4];
      load_matrix_x4(bytes, count == 2 ? k_lane.at(n * 8, step) : k_last.at(n * 8, step));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
          u32 b[2];
          widen<Keys, false>(bytes[half * 2 + i], b[0], b[1]);
#pragma unroll
          for (int m = 0; m < Map::kRowTiles; ++m) {
            mma_16816<f16>(scores.block[m][n + half], a[i][m], b[0], b[1]);
          }
        }
      }
    }
  }
}

// Adds the products of weights and 16 columns of 16 values, as a transposed ldmatrix gives them:
// chunk `chunk` of the warp's outputs.
template <class Keys, class OutMap>
__device__ __forceinline__ void multiply_chunk(Fragment<OutMap>& out,
                                               const u32 (&a)[OutMap::kRowTiles][4], u32 first,
                                               u32 second, int chunk) {
  u32 even[2], odd[2];
  widen<Keys, true>(first, even[0], odd[0]);
  widen<Keys, true>(second, even[1], odd[1]);
#pragma unroll
  for (int m = 0; m < OutMap::kRowTiles; ++m) {
    mma_16816<f16>(out.block[m][2 * chunk], a[m], even[0], even[1]);
    mma_16816<f16>(out.block[m][2 * chunk + 1], a[m], odd[0], odd[1]);
  }
}

// `out` has an AlternatingFragMap.
template <class Keys, class VLayout, class Map, class OutMap>
__device__ __forceinline__ void multiply_pv_bytes(Fragment<OutMap>& out,
                                                  const Fragment<Map>& weights, u32 v) {
  constexpr int kChunks = VLayout::kRowBytes / 16;
  const int lane = threadIdx.x % 32;
  const LaneChunks<VLayout> v_lane(v, lane % 16, lane / 16);
  const LaneChunks<VLayout> v_last(v, lane % 16, 0);
#pragma unroll
  for (int k = 0; k < Map::kColTiles; k += 2) {
    u32 a[Map::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Map::kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float (&block)[4] = weights.block[m][k + i / 2];
        a[m][i] = pack2<f16>(block[i % 2 * 2], block[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; chunk += 2) {
      const int count = chunk + 1 < kChunks ? 2 : 1;
      u32 bytes[4];
      load_matrix_x4_transposed(bytes,
                                count == 2 ? v_lane.at(k * 8, chunk) : v_last.at(k * 8, chunk));
#pragma unroll
      for (int i = 0; i < count; ++i) {
        multiply_chunk<Keys>(out, a, bytes[2 * i], bytes[2 * i + 1], chunk + i);
      }
    }
  }
}

// Computes out += weights V with a tile of all partners' weights: see multiply_stored_pv().
template <class Keys, class WeightLayout, class VLayout, int kKeys, class OutMap>
__device__ __forceinline__ void multiply_stored_pv_bytes(Fragment<OutMap>& out, u32 weights,
                                                         int row, u32 v) {
  static_assert(OutMap::kColTiles % 4 == 0, "multiply_stored_pv_bytes: chunks are paired");
  const int lane = threadIdx.x % 32;
  const LaneChunks<WeightLayout> weight_lane(weights, row + lane % 16, lane / 16);
  const LaneChunks<VLayout> v_lane(v, lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < kKeys / 8; k += 2) {
    u32 a[OutMap::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < OutMap::kRowTiles; ++m) load_matrix_x4(a[m], weight_lane.at(m * 16, k));
#pragma unroll
    for (int chunk = 0; chunk < OutMap::kColTiles / 2; chunk += 2) {
      u32 bytes[4];
      load_matrix_x4_transposed(bytes, v_lane.at(k * 8, chunk));
      multiply_chunk<Keys>(out, a, bytes[0], bytes[1], chunk);
      multiply_chunk<Keys>(out, a, bytes[2], bytes[3], chunk + 1);
    }
  }
}

}  // namespace kiln
