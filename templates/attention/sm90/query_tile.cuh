// A tile of queries of one head, as the hooks of a variant and the epilogue see it.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/attention/variant.cuh"

namespace kiln {

struct TilePlace {
  int b, h, h_kv, first_row;
  int split_;  // of its keys
};

// Where a warp's partial results of all splits of a query tile begin in the workspace, and how many
// there are of all warps, see combine.cuh.
struct SplitPlaces {
  i64 first, all;
};

// More splits than this are joined in two rounds.
constexpr int kMostJoinedAtOnce = 8;

struct QueryTile : TilePlace {
  using Place = TilePlace;
  using Params = AttentionParams;
  const Params& p;

  __device__ __forceinline__ QueryTile(const AttentionParams& params, const TilePlace& place)
      : TilePlace(place), p(params) {}

  __device__ __forceinline__ int all_keys() const { return p.len_kv; }
  // The coordinates of rows in the tensor maps.
  __device__ __forceinline__ int q_row() const { return first_row; }
  __device__ __forceinline__ int q_batch() const { return b; }
  __device__ __forceinline__ int key_row(int kv) const { return kv; }
  __device__ __forceinline__ int key_batch() const { return b; }

  // `tile_row` counts from the tile's first row, `kv` from the sequence's first key. Padding gets
  // the position of the last row or key.
  __device__ __forceinline__ Position position(int tile_row, int kv) const {
    const int row = min(first_row + tile_row, p.len_q - 1);
    const int q = row + p.len_kv - p.len_q, key = min(kv, p.len_kv - 1);
    return {b, h, h_kv, row, q, key, p.len_q, p.len_kv, to_float(q - key)};
  }
  // Positions of the tile's `count` rows from `tile_row` on, as far as they exist.
  __device__ __forceinline__ TileRows rows(int tile_row, int count) const {
    const int shift = p.len_kv - p.len_q, row = first_row + tile_row;
    return {b, row + shift, min(row + count, p.len_q) - 1 + shift, p.len_q, p.len_kv, h, h_kv};
  }
  // Positions of all queries of the head.
  __device__ __forceinline__ TileRows all_rows() const {
    const int shift = p.len_kv - p.len_q;
    return {b, shift, p.len_kv - 1, p.len_q, p.len_kv, h, h_kv};
  }
  // The rows of the tile that exist, which are its first; perhaps more than it can have.
  __device__ __forceinline__ int row_count() const { return p.len_q - first_row; }
  __device__ __forceinline__ bool has_row(int tile_row) const {
    return first_row + tile_row < p.len_q;
  }
  // With splits: every tile has some.
  __device__ __forceinline__ static constexpr bool is_split() { return true; }
  __device__ __forceinline__ int split() const { return split_; }
  __device__ __forceinline__ int splits() const { return p.splits; }
  template <int kBlockQ>
  __device__ __forceinline__ SplitPlaces split_places(u32 warp) const {
    constexpr int kWarps = kBlockQ / 16;
    const i64 tiles = ceil_div(p.len_q, kBlockQ), all_heads = static_cast<i64>(p.batch) * p.heads;
    const i64 index = (static_cast<i64>(b) * p.heads + h) * tiles + first_row / kBlockQ;
    return {(index * kWarps + warp) * p.splits, all_heads * tiles * kWarps * p.splits};
  }
  template <class Element>
  __device__ __forceinline__ Element* out_row(int tile_row) const {
    return static_cast<Element*>(p.out) + b * p.out_batch + h * p.out_head +
           static_cast<i64>(first_row + tile_row) * p.out_row;
  }
  __device__ __forceinline__ bool wants_lse() const { return p.lse != nullptr; }
  __device__ __forceinline__ float* lse(int tile_row) const {
    return p.lse + b * p.lse_batch + h * p.lse_head + first_row + tile_row;
  }
};

}  // namespace kiln
