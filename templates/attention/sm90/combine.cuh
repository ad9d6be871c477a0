// The epilogue where several CTAs have each computed some of a query tile's keys. Each math warp
// passes the partial results of its 16 rows through the workspace, and the last one to arrive joins
// them, always in the same order.
#pragma once
#include "/kiln/attention/combine.cuh"
#include "/kiln/attention/sm90/query_tile.cuh"

namespace kiln {

// Joins the partial results of a warp's 16 rows and writes them. `row_of(i, row)` returns the i-th
// PartialRow of a row. The warp has kRows rows under way at a time, because it would otherwise wait
// for memory: one row at a time takes 40 us for eleven splits.
template <class Config, class Variant, class Row>
__device__ __forceinline__ void store_joined(const Variant& variant, const QueryTile& tile,
                                             int warp_row, Row row_of) {
  using Element = typename Config::Element;
  constexpr int kRows = 4, kQuads = Config::kHeadDimV / 4;
  const int lane = threadIdx.x % 32, splits = tile.p.splits;
#pragma unroll 1
  for (int first = 0; first < 16; first += kRows) {
    float largest[kRows];  // at first of every 32nd split
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      largest[r] = -KILN_INFINITY;
#pragma unroll 1
      for (int i = lane; i < splits; i += 32) {
        largest[r] = fmaxf(largest[r], row_of(i, first + r).sum().max);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        largest[r] = fmaxf(largest[r], __shfl_xor_sync(~0u, largest[r], step));
      }
    }
#pragma unroll 1
    for (int quad = lane; quad < kQuads; quad += 32) {
      CombinedOutputs all[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) all[r].clear(largest[r]);
#pragma unroll 4
      for (int i = 0; i < splits; ++i) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const auto row = row_of(i, first + r);
          all[r].add(row.sum(), row.outputs(quad * 4));
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int row = warp_row + first + r;
        if (!tile.has_row(row)) continue;
        if (tile.wants_lse() && quad == 0) *tile.lse(row) = lse_of(all[r].sum);
        const Position at = tile.position(row, 0);
        if constexpr (Variant::kTakesMaxima) {
          if (quad == 0) variant.take_maximum(all[r].sum, at);
        }
        u32 words[2];
        all[r].template round<Element>(variant, at, words);
        store_words<true>(tile.template out_row<Element>(row) + quad * 4, words);
      }
    }
  }
}

// The place of a warp's 16 rows in the workspace, of which each split has its partial results.
template <class Config>
struct SharedRows {
  using Row = PartialRow<Config::kHeadDimV>;
  u64* flags;
  float* partials;

  __device__ __forceinline__ SharedRows(const QueryTile& tile, int warp_row) {
    constexpr int kBlockQ = 64 * Config::kGroups, kWarps = kBlockQ / 16;
    const AttentionParams& p = tile.p;
    const i64 tiles = ceil_div(p.len_q, kBlockQ), heads = static_cast<i64>(p.batch) * p.heads;
    const i64 index =
        (static_cast<i64>(tile.b) * p.heads + tile.h) * tiles + tile.first_row / kBlockQ;
    // Unsigned: ptxas would keep the sign of a division's result through the main loop.
    const i64 first = (index * kWarps + static_cast<u32>(warp_row) / 16) * p.splits;
    u8* const workspace = static_cast<u8*>(p.workspace);
    flags = reinterpret_cast<u64*>(workspace) + first;
    partials = reinterpret_cast<float*>(workspace +
                                        attention_flag_bytes(heads * tiles * kWarps, p.splits)) +
               first * 16 * Row::kFloats;
  }
  __device__ __forceinline__ Row row(int split, int row) const {
    return {partials + (split * 16 + row) * Row::kFloats};
  }
};

// Called by each math warp after softmax.finish(): writes its partial results.
template <class Config, class Softmax, class Map>
__device__ __forceinline__ void write_partial(const QueryTile& tile, const Softmax& softmax,
                                              Fragment<Map>& out, int warp_row) {
  const SharedRows<Config> shared(tile, warp_row);
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const auto row = shared.row(tile.split, Map::row(r));
    if (Map::leads_row()) row.set_sum(softmax.row[r]);
#pragma unroll
    for (int c = 0; c < Map::kCols; c += 2) {
      *reinterpret_cast<float2*>(row.at + Map::col(c)) = {out.at(r, c), out.at(r, c + 1)};
    }
  }
}

// Called by each math warp after write_partial(): the last one of all splits writes the rows.
template <class Config, class Variant>
__device__ __forceinline__ void join_splits(const Variant& variant, const QueryTile& tile,
                                            int warp_row) {
  const SharedRows<Config> shared(tile, warp_row);
  if (arrives_last<WarpThreads>(shared.flags, tile.p.nonce, tile.split, tile.p.splits)) {
    store_joined<Config>(variant, tile, warp_row,
                         [&](int split, int row) { return shared.row(split, row); });
  }
}

}  // namespace kiln
