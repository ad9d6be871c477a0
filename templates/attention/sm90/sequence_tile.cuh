// A tile of queries of one head of a sequence that has lengths of its own: QueryTile's interface.
#pragma once
#include "/kiln/attention/sm90/query_tile.cuh"
#include "/kiln/attention/tiles.cuh"
#include "/kiln/attention/varlen/divisor.cuh"
#include "/kiln/attention/varlen/sequences.cuh"

namespace kiln {

struct SequencePlace {
  int b, h, h_kv, first_row;
  int entry, first_q, len_q, first_k, len_kv;  // as in Sequence
};

struct SequenceTile : SequencePlace {
  using Place = SequencePlace;
  using Params = AttentionVarlenParams;
  static constexpr bool kGroupsHeads = false;
  const Params& p;

  __device__ __forceinline__ SequenceTile(const Params& params, const Place& place)
      : Place(place), p(params) {}

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
  __device__ __forceinline__ TileRows rows(int tile_row, int count) const {
    const int shift = len_kv - len_q, row = first_row + tile_row;
    return {b, row + shift, min(row + count, len_q) - 1 + shift, len_q, len_kv, h, h_kv};
  }
  __device__ __forceinline__ TileRows all_rows() const {
    return {b, len_kv - len_q, len_kv - 1, len_q, len_kv, h, h_kv};
  }
  __device__ __forceinline__ int row_count() const { return len_q - first_row; }
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

// A tile of queries of one head or of all that share a KV head, which are neighbouring rows, see
// AttentionVarlenParams::tile_heads. `h` is the first of the heads.
struct GroupedTile : SequenceTile {
  static constexpr bool kGroupsHeads = true;
  using SequenceTile::SequenceTile;

  __device__ __forceinline__ Position position(int tile_row, int kv) const {
    const Query at = query(tile_row);
    const int row = min(at.row, len_q - 1);
    const int q = row + len_kv - len_q, key = min(kv, len_kv - 1);
    return {b, at.h, h_kv, row, q, key, len_q, len_kv, to_float(q - key)};
  }
  __device__ __forceinline__ TileRows rows(int tile_row, int count) const {
    const int shift = len_kv - len_q, last = min(tile_row + count, row_count()) - 1;
    const int of_all = p.tile_heads == 1 ? h : -1;
    return {b, query(tile_row).row + shift, query(last).row + shift, len_q, len_kv, of_all, h_kv};
  }
  __device__ __forceinline__ int row_count() const {
    return min(len_q - first_row, p.tile_queries) * p.tile_heads;
  }
  __device__ __forceinline__ bool has_row(int tile_row) const { return tile_row < row_count(); }
  template <class Element>
  __device__ __forceinline__ Element* out_row(int tile_row) const {
    const AttentionParams& c = p.call;
    const Query at = query(tile_row);
    return static_cast<Element*>(c.out) + b * c.out_batch + at.h * c.out_head +
           static_cast<i64>(first_q + at.row) * c.out_row;
  }
  __device__ __forceinline__ float* lse(int tile_row) const {
    const AttentionParams& c = p.call;
    const Query at = query(tile_row);
    return c.lse + b * c.lse_batch + at.h * c.lse_head + first_q + at.row;
  }

 private:
  struct Query {
    int row, h;
  };
  __device__ __forceinline__ Query query(int tile_row) const {
    const int in_tile = tile_row * p.tile_heads_factor >> 16;
    return {first_row + in_tile, h + tile_row - in_tile * p.tile_heads};
  }
};

// How query tiles lie beside each other: one for each head, or one for all that share a KV head.
template <class Tile>
struct TileColumns {
  const AttentionVarlenParams& p;

  __device__ __forceinline__ u32 count() const {
    return static_cast<u32>(has_group() ? p.call.heads_kv : p.call.heads);
  }
  // Those that see the same keys.
  __device__ __forceinline__ u32 together() const { return has_group() ? 1 : group(); }
  __device__ __forceinline__ int h(u32 column) const {
    return static_cast<int>(has_group() ? column * group() : column);
  }
  __device__ __forceinline__ int h_kv(u32 column) const {
    return has_group() ? static_cast<int>(column) : quotient(column, p.group);
  }
  // Queries that a tile of so many rows has at most.
  __device__ __forceinline__ int queries(int block_q) const {
    return Tile::kGroupsHeads ? p.tile_queries : block_q;
  }
  // The `tile`-th of a sequence in a column.
  __device__ __forceinline__ SequencePlace place(const Sequence& s, u32 column, u32 tile,
                                                 int block_q) const {
    const int first_row = static_cast<int>(tile) * queries(block_q);
    return {s.b,       h(column), h_kv(column), first_row, s.entry,
            s.first_q, s.len_q,   s.first_k,    s.len_kv};
  }

 private:
  __device__ __forceinline__ bool has_group() const {
    return Tile::kGroupsHeads && p.tile_heads != 1;
  }
  __device__ __forceinline__ u32 group() const { return static_cast<u32>(p.group.by); }
};

// Where CTAs may share the keys of a tile: QueryTile's interface for such.
struct SequencePiecePlace : SequencePlace {
  // This one's place among the CTAs that share them, how many these are, and the first of them.
  int piece, pieces;
  u32 first_cta;
};

// A schedule gives a CTA such pieces.
struct SequencePiece : SequencePiecePlace {
  Range steps;  // of keys, counted from the first that the tile sees
};
// A schedule of pieces keeps these words beside its registers, see known_pieces.cuh and
// sequence_shares.cuh.
enum class KeptWord : u32 { next, share, all, end, begun, begun_end };
constexpr u32 kKeptWords = 6;

// Counts the steps of keys that a tile sees.
template <class Variant, class Tile>
__device__ __forceinline__ u32 steps_of_keys(const Variant& variant, const Tile& tile, int block_q,
                                             int block_kv) {
  const Range keys = visible_range(variant, tile.rows(0, block_q));
  return ceil_div(keys.end - keys.begin / block_kv * block_kv, block_kv);
}

template <class Base>
struct SequencePieceTile : Base {
  using Place = SequencePiecePlace;
  int piece, pieces;
  u32 first_cta;

  __device__ __forceinline__ SequencePieceTile(const AttentionVarlenParams& params,
                                               const Place& place)
      : Base(params, place), piece(place.piece), pieces(place.pieces), first_cta(place.first_cta) {}
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
