// Maps a CTA to the rows of the tensors that it works on. All pointer arithmetic of attention is
// here, so another storage of Q and KV is another class with these functions.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/attention/variant.cuh"

namespace kiln {

// Walks over rows at a constant stride, for load_tile().
template <class Element>
struct StridedRows {
  const Element* pointer;
  i64 stride;

  __device__ __forceinline__ void seek(int row) { pointer += static_cast<u32>(row) * stride; }
  __device__ __forceinline__ void skip(int count) { pointer += count * stride; }
  __device__ __forceinline__ void shift(int elements) { pointer += elements; }
};

// Walks over the rows of a packed query tile for load_tile(), which reads none past the last.
// `tile` finds a row behind `base`, that of the first head's first query.
template <class Tile, class Element>
struct PackedRows {
  const Element* pointer;
  const Tile& tile;
  const Element* base;
  int row;

  __device__ __forceinline__ void seek(int to) {
    row = to;
    pointer = base + tile.query_offset(row);
  }
  __device__ __forceinline__ void skip(int count) { seek(row + count); }
};

// Every batch entry has the same lengths, and every tensor has its own strides. The rows of a tile
// are neighbouring queries of one head. Packed, they are the queries of all heads that share a KV
// head, heads innermost, so that few queries fill a tile and keys are read once for these heads.
template <class Config>
class DenseAddressing {
 public:
  using Element = typename Config::Element;

  // Maps a CTA to a query tile of a head and a share of its keys. Heads that share a KV head get
  // neighbouring CTAs, so that their keys come from L2. KV heads are taken in groups whose keys and
  // values fit there; in a group the last query tiles come first, as a causal mask makes them
  // slowest.
  __device__ __forceinline__ DenseAddressing(const AttentionParams& params, u32 cta) : p_(params) {
    constexpr u32 kGroupBytes = 24 << 20;
    group_ = static_cast<u32>(p_.heads) / static_cast<u32>(p_.heads_kv);
    split_ = Config::kSplits ? cta % static_cast<u32>(p_.splits) : 0;
    tile_ = Config::kSplits ? cta / static_cast<u32>(p_.splits) : cta;
    const u32 sharing = Config::kPacked ? 1 : group_;
    const u32 kv_heads = static_cast<u32>(p_.batch) * p_.heads_kv;
    const u32 tiles = ceil_div(all_rows(), Config::kBlockQ);
    const u64 head_bytes = (Config::kHeadDim + Config::kHeadDimV) * 2ull * max(p_.len_kv, 1);
    const u32 fitting = head_bytes < kGroupBytes ? kGroupBytes / static_cast<u32>(head_bytes) : 1;
    const u32 together = min(fitting, kv_heads);
    const u32 first = tile_ / (together * sharing * tiles) * together;
    const u32 width = min(together, kv_heads - first) * sharing;
    const u32 index = tile_ - first * sharing * tiles;
    const u32 column = index % width;
    const u32 kv_head = first + column / sharing;
    b_ = kv_head / p_.heads_kv;
    h_kv_ = kv_head % p_.heads_kv;
    h_ = h_kv_ * group_ + column % sharing;
    first_row_ = (tiles - 1 - index / width) * Config::kBlockQ;
  }

  // Returns the positions of `count` rows of the query tile. With kExact all of them exist; without
  // it the last may lie past the end, which saves one register.
  template <bool kExact>
  __device__ __forceinline__ TileRows tile_rows(int tile_row, int count) const {
    const int shift = p_.len_kv - p_.len_q;
    if constexpr (!kExact && !Config::kPacked) {
      const int q = first_row_ + tile_row + shift;
      return {b_, q, q + count - 1, p_.len_q, p_.len_kv, h_, h_kv_};
    }
    const int first = min(first_row_ + tile_row, all_rows() - 1);
    const int last = min(first + count, all_rows()) - 1;
    return {b_,
            query(first).row + shift,
            query(last).row + shift,
            p_.len_q,
            p_.len_kv,
            Config::kPacked ? -1 : h_,
            h_kv_};
  }
  // The number of rows of the query tile that exist.
  __device__ __forceinline__ int rows() const {
    return min(Config::kBlockQ, all_rows() - first_row_);
  }
  // tile() is the query tile's index in the launch, split() this CTA's share of its keys.
  __device__ __forceinline__ u32 tile() const { return tile_; }
  __device__ __forceinline__ int split() const { return split_; }

  // `tile_row` counts from the query tile's first row, `kv` from the sequence's first key.
  __device__ __forceinline__ Position position(int tile_row, int kv) const {
    const Query at = query(min(first_row_ + tile_row, all_rows() - 1));
    const int shift = p_.len_kv - p_.len_q;
    const int q = at.row + shift, key = min(kv, p_.len_kv - 1);
    return {b_, at.h, h_kv_, at.row, q, key, p_.len_q, p_.len_kv, to_float(q - key)};
  }
  __device__ __forceinline__ auto q_rows() const {
    const Element* base = static_cast<const Element*>(p_.q) + b_ * p_.q_batch;
    if constexpr (Config::kPacked) {
      return PackedRows<DenseAddressing, Element>{nullptr, *this, base, 0};
    } else {
      return StridedRows<Element>{base + h_ * p_.q_head + first_row_ * p_.q_row, p_.q_row};
    }
  }
  __device__ __forceinline__ i64 query_offset(int tile_row) const {
    const Query at = query(first_row_ + tile_row);
    return at.h * p_.q_head + at.row * p_.q_row;
  }
  // K and V rows of this CTA's KV head, formed for each tile: two pointers take four registers.
  __device__ __forceinline__ StridedRows<Element> k_rows() const {
    return {static_cast<const Element*>(p_.k) + opaque(b_) * p_.k_batch + opaque(h_kv_) * p_.k_head,
            p_.k_row};
  }
  __device__ __forceinline__ StridedRows<Element> v_rows() const {
    return {static_cast<const Element*>(p_.v) + opaque(b_) * p_.v_batch + opaque(h_kv_) * p_.v_head,
            p_.v_row};
  }
  __device__ __forceinline__ Element* out_row(int tile_row) const {
    const Query at = query(first_row_ + tile_row);
    return static_cast<Element*>(p_.out) + b_ * p_.out_batch + at.h * p_.out_head +
           at.row * p_.out_row;
  }
  __device__ __forceinline__ bool wants_lse() const { return p_.lse != nullptr; }
  __device__ __forceinline__ float* lse(int tile_row) const {
    const Query at = query(first_row_ + tile_row);
    return p_.lse + b_ * p_.lse_batch + at.h * p_.lse_head + at.row;
  }

 private:
  struct Query {
    int row, h;
  };
  // Counts the rows of all tiles with this CTA's K and V pointers and, unless packed, its head.
  __device__ __forceinline__ int all_rows() const {
    return Config::kPacked ? p_.len_q * static_cast<int>(group_) : p_.len_q;
  }
  __device__ __forceinline__ Query query(int row) const {
    if constexpr (Config::kPacked) {
      const u32 in_group = static_cast<u32>(row) % group_;
      return {static_cast<int>(static_cast<u32>(row) / group_),
              h_kv_ * static_cast<int>(group_) + static_cast<int>(in_group)};
    }
    return {row, h_};
  }

  const AttentionParams& p_;
  u32 group_, tile_;
  int split_, b_, h_, h_kv_, first_row_;
};

}  // namespace kiln
