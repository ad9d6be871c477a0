// The epilogue of a math warp: it normalises and rounds its 16 rows and writes output and LSE.
// Warps do not wait for each other here.
#pragma once
#include "/kiln/attention/sm90/main_loop.cuh"
#include "/kiln/attention/store.cuh"

namespace kiln {

// The output of a warp's 16 rows, rounded. Word r of a block has this lane's two columns of its row
// r of 8.
template <class Map>
struct RoundedRows {
  u32 block[Map::kColTiles][2];
};

// Multiplies the accumulators by the rows' factors and `value_scale`, and writes the LSE.
template <class Element, class Variant, class Tile, class Softmax, class Map>
__device__ __forceinline__ RoundedRows<Map> finish_rows(const Variant& variant, const Tile& tile,
                                                        const Softmax& softmax, Fragment<Map>& out,
                                                        float value_scale, int warp_row) {
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const int row = warp_row + Map::row(r);
    const RowSum sum = softmax.row[r];
    const Position at = tile.position(row, 0);
    if (tile.wants_lse() && Map::leads_row() && tile.has_row(row)) *tile.lse(row) = lse_of(sum);
    if constexpr (Variant::kTakesMaxima) {
      if (Map::leads_row() && tile.has_row(row)) variant.take_maximum(sum, at);
    }
    const float factor = row_factor(sum, variant, at) * value_scale;
#pragma unroll
    for (int c = 0; c < Map::kCols; ++c) {
      out.at(r, c) *= factor;
      if constexpr (Variant::kTransformsOutput) out.at(r, c) = variant.out(out.at(r, c), at);
    }
  }
  RoundedRows<Map> rows;
#pragma unroll
  for (int c = 0; c < Map::kColTiles; ++c) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.block[c][r] = pack2<Element>(out.block[0][c][2 * r], out.block[0][c][2 * r + 1]);
    }
  }
  return rows;
}

// Passes the rows through shared memory, in the layout of Q's slabs, to the copy engine, which
// drops rows past the sequence and columns past the head dim. `memory` is the shared address of the
// warp's 16 rows in the first slab.
template <class Config, class Map>
__device__ __forceinline__ void store_staged(const TensorMap& map, const QueryTile& tile,
                                             const RoundedRows<Map>& out, int warp_row,
                                             u32 memory) {
  using Shape = AttentionSm90Shape<Config>;
  using Rows = SwizzledRows<8>;
  const int lane = threadIdx.x % 32;
  if (lane == 0) wait_stores_read<0>();  // of this warp's rows of the tile before
  __syncwarp();
#pragma unroll
  for (int c = 0; c < Map::kColTiles; c += 2) {
    // Lane l gives the address of row l % 16 of blocks c and c + 1, which stmatrix takes in turn.
    const u32(&block)[2] = out.block[c];
    const u32(&next)[2] = out.block[c + 1 < Map::kColTiles ? c + 1 : c];
    const u32 slab = memory + c / 8 * Shape::kQSlabBytes;
    store_matrix_x4(slab + Rows::offset(lane % 16, c % 8 + lane / 16), block[0], block[1], next[0],
                    next[1]);
  }
  fence_async_proxy();
  __syncwarp();
  if (lane == 0) {
#pragma unroll
    for (int slab = 0; slab < Shape::kSlabsV; ++slab) {
      store_box(map, memory + slab * Shape::kQSlabBytes, slab * 64, tile.first_row + warp_row,
                tile.h, tile.b);
    }
    commit_stores();
  }
}

// Exchanges words between the four lanes that share a row: lane t gets word t of each, in the order
// of the lanes.
__device__ __forceinline__ void transpose_quad(u32 (&words)[4]) {
#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    const bool upper = (threadIdx.x & step) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const u32 given = upper ? words[i] : words[i + step];
      const u32 taken = __shfl_xor_sync(~0u, given, step);
      if (upper) {
        words[i] = taken;
      } else {
        words[i + step] = taken;
      }
    }
  }
}

// Writes the rows from registers, 16 bytes a lane, where no shared memory is left for them.
template <class Config, class Tile, class Map>
__device__ __forceinline__ void store_direct(const Tile& tile, const RoundedRows<Map>& out,
                                             int warp_row) {
  using Element = typename Config::Element;
  const int own = threadIdx.x % 4;  // of four blocks of 8 columns, the one that this lane writes
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const int row = warp_row + Map::row(r);
    Element* const destination = tile.template out_row<Element>(row);
#pragma unroll
    for (int c = 0; c < Map::kColTiles; c += 4) {
      u32 words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = out.block[c + i < Map::kColTiles ? c + i : c][r];
      }
      transpose_quad(words);
      if (tile.has_row(row) && c + own < Map::kColTiles) {
        store_words<true>(destination + (c + own) * 8, words);
      }
    }
  }
}

}  // namespace kiln
