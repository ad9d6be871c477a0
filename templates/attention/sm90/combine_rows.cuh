// The epilogue of combine.cuh where the sums in the order of registers would spill what the main
// loop keeps: for three warpgroups, whose math warps have 160 registers, for wide values of dense
// calls and of quantised caches, and beside code at every logit of more than 64 columns. The last
// warp to arrive joins some of its 16 rows at a time instead, while no output is in a register.
#pragma once
#include "/kiln/attention/combine.cuh"
#include "/kiln/attention/sm90/query_tile.cuh"
#include "/kiln/base/ticket.cuh"

namespace kiln {

// Joins the partial results of a warp's 16 rows and writes them. `row_of(i, row)` returns the i-th
// PartialRow of a row. The warp has kRows rows under way at a time, because it would otherwise wait
// for memory: one row at a time takes 40 us for eleven splits.
template <class Config, class Variant, class Tile, class Row>
__device__ __forceinline__ void store_joined(const Variant& variant, const Tile& tile, int warp_row,
                                             Row row_of) {
  using Element = typename Config::Element;
  // As many as there are registers for.
  constexpr bool kHasFew =
      Config::kGroups == 3 || Config::kHeadDimV > 128 || KeysOf<Config>::kQuantized;
  constexpr int kRows = kHasFew ? 4 : 8;
  constexpr int kQuads = Config::kHeadDimV / 4;
  const int lane = threadIdx.x % 32, splits = tile.splits();
  float scale = 1.0f;
  if constexpr (Config::kHasScales) scale = tile.value_scale();
  // A lane has every other split of a row.
  float of_lane = -KILN_INFINITY;
#pragma unroll 4
  for (int first = 0; first < splits; first += 2) {
    of_lane = fmaxf(of_lane, row_of(min(first + lane / 16, splits - 1), lane % 16).sum().max);
  }
  of_lane = fmaxf(of_lane, __shfl_xor_sync(~0u, of_lane, 16));
#pragma unroll 1
  for (int first = 0; first < 16; first += kRows) {
    float largest[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) largest[r] = __shfl_sync(~0u, of_lane, first + r);
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
        all[r].template round<Element>(variant, at, words, scale);
        store_words<true>(tile.template out_row<Element>(row) + quad * 4, words);
      }
    }
  }
}

// The place of a warp's 16 rows in the workspace, of which each split has its partial results.
template <class Config>
struct SharedRows {
  using Row = PartialRow<Config::kHeadDimV>;
  u64* counter;
  float* partials;

  template <class Tile>
  __device__ __forceinline__ SharedRows(const Tile& tile, int warp_row) {
    constexpr int kBlockQ = 64 * Config::kGroups;
    // Unsigned: ptxas would keep the sign of a division's result through the main loop.
    const SplitPlaces places = tile.template split_places<kBlockQ>(static_cast<u32>(warp_row) / 16);
    u8* const workspace = static_cast<u8*>(call_of(tile.p).workspace);
    counter = reinterpret_cast<u64*>(workspace) + places.first;
    partials = reinterpret_cast<float*>(workspace + attention_flag_bytes(places.all, 1)) +
               places.first * 16 * Row::kFloats;
  }
  __device__ __forceinline__ Row row(int split, int row) const {
    return {partials + (split * 16 + row) * Row::kFloats};
  }
};

// Called by each math warp after softmax.finish(): writes its partial results.
template <class Config, class Tile, class Softmax, class Map>
__device__ __forceinline__ void write_partial_rows(const Tile& tile, const Softmax& softmax,
                                                   Fragment<Map>& out, int warp_row) {
  const SharedRows<Config> shared(tile, warp_row);
#pragma unroll
  for (int r = 0; r < Map::kRows; ++r) {
    const auto row = shared.row(tile.split(), Map::row(r));
    if (Map::leads_row()) row.set_sum(softmax.row[r]);
#pragma unroll
    for (int c = 0; c < Map::kCols; c += 2) {
      *reinterpret_cast<float2*>(row.at + Map::col(c)) = {out.at(r, c), out.at(r, c + 1)};
    }
  }
}

// Called by each math warp after write_partial_rows(): the last one of all splits writes the rows.
template <class Config, class Variant, class Tile>
__device__ __forceinline__ void join_rows(const Variant& variant, const Tile& tile, int warp_row) {
  const SharedRows<Config> shared(tile, warp_row);
  const Arrivals arrivals(shared.counter, call_of(tile.p).nonce, tile.splits());
  if (WarpThreads::index() == 0) arrivals.open(Arrivals::look(shared.counter));
  if (arrivals.template is_last<WarpThreads>()) {
    store_joined<Config>(variant, tile, warp_row,
                         [&](int split, int row) { return shared.row(split, row); });
  }
}

}  // namespace kiln
