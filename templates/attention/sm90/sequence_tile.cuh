// A tile of queries of one head of a sequence that has lengths of its own: QueryTile's interface.
#pragma once
#include "/kiln/attention/sm90/query_tile.cuh"
#include "/kiln/attention/varlen/sequences.cuh"

namespace kiln {

struct SequencePlace {
  int b, h, h_kv, first_row;
  int entry, first_q, len_q, first_k, len_kv;  // as in Sequence
};

struct SequenceTile : SequencePlace {
  using Place = SequencePlace;
  using Params = AttentionVarlenParams;
  const Params& p;

  __device__ __forceinline__ SequenceTile(const Params& params, const Place& place)
      : Place(place), p(params) {}

  __device__ __forceinline__ int all_rows() const { return len_q; }
  __device__ __forceinline__ int all_keys() const { return len_kv; }
  // The coordinates of rows in the tensor maps, those of keys unless they are paged.
  __device__ __forceinline__ int q_row() const { return first_q + first_row; }
  __device__ __forceinline__ int q_batch() const { return p.packed_queries != 0 ? 0 : b; }
  __device__ __forceinline__ int key_row(int kv) const { return first_k + kv; }
  __device__ __forceinline__ int key_batch() const { return p.call.k_batch == 0 ? 0 : entry; }

  __device__ __forceinline__ Position position(int tile_row, int kv) const {
    const int row = min(first_row + tile_row, len_q - 1);
    const int q = row + len_kv - len_q, key = min(kv, len_kv - 1);
    return {b, h, h_kv, row, q, key, len_q, len_kv, to_float(q - key)};
  }
  __device__ __forceinline__ TileRows rows_from(int row, int count) const {
    const int shift = len_kv - len_q;
    return {b, row + shift, min(row + count, len_q) - 1 + shift, len_q, len_kv, h, h_kv};
  }
  __device__ __forceinline__ bool has_row(int tile_row) const {
    return first_row + tile_row < len_q;
  }
  template <class Element>
  __device__ __forceinline__ Element* out_row(int tile_row) const {
    const AttentionParams& c = p.call;
    return static_cast<Element*>(c.out) + b * c.out_batch + h * c.out_head +
           static_cast<i64>(first_q + first_row + tile_row) * c.out_row;
  }
  // As VarlenAddressing's.
  __device__ __forceinline__ float logit_scale() const { return logit_scale_at(p, b, h_kv); }
  __device__ __forceinline__ float value_scale() const { return scale_at(p.v_scale, b, h_kv); }
  __device__ __forceinline__ bool wants_lse() const { return p.call.lse != nullptr; }
  __device__ __forceinline__ float* lse(int tile_row) const {
    return p.call.lse + b * p.call.lse_batch + h * p.call.lse_head + first_q + first_row + tile_row;
  }
};

// Where CTAs may share the keys of a tile: QueryTile's interface for such.
struct SequencePiecePlace : SequencePlace {
  // This one's place among the CTAs that share them, how many these are, and the first of them.
  int piece, pieces;
  u32 first_cta;
};

struct SequencePieceTile : SequenceTile {
  using Place = SequencePiecePlace;
  int piece, pieces;
  u32 first_cta;

  __device__ __forceinline__ SequencePieceTile(const Params& params, const Place& place)
      : SequenceTile(params, place),
        piece(place.piece),
        pieces(place.pieces),
        first_cta(place.first_cta) {}
  __device__ __forceinline__ operator Place() const {
    return {static_cast<const SequencePlace&>(*this), piece, pieces, first_cta};
  }

  __device__ __forceinline__ bool is_split() const { return pieces > 1; }
  __device__ __forceinline__ int split() const { return piece; }
  __device__ __forceinline__ int splits() const { return pieces; }
  // A CTA has at most two partial results, of the tile that it begins with and of the one that it
  // ends with. Of any two shared tiles, the first CTA of the later one is not before the last CTA
  // of the other, so that two places for each CTA keep them apart.
  template <int kBlockQ>
  __device__ __forceinline__ SplitPlaces split_places(u32 warp) const {
    const i64 places = i64{2} * gridDim.x;
    return {warp * places + 2 * first_cta, kBlockQ / 16 * places};
  }
};

}  // namespace kiln
