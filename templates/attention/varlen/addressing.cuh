// Maps a piece of work to the rows of the tensors: DenseAddressing's interface, for sequences that
// have lengths of their own. Rows are packed: the queries of all heads that share a KV head, heads
// innermost.
#pragma once
#include "/kiln/attention/flash_attention.cuh"
#include "/kiln/attention/varlen/work.cuh"

namespace kiln {

// The pages of the rows that a thread copies of a tile of keys. They are looked up a tile ahead, as
// an answer from the table takes longer than a tile's products.
template <int kRows_, int kStep_>
struct PagesAhead {
  static constexpr int kRows = kRows_, kStep = kStep_;
  int first = -1;  // the first of these rows
  int page[kRows];
};

// Finds the keys of a sequence in their pages.
template <class Element>
struct PageTable {
  const AttentionVarlenParams& p;
  const int* pages;  // of the sequence
  int last;          // its last key: behind it the table may hold anything, or end
  const Element* base;
  i64 page_stride, row_stride;

  __device__ __forceinline__ u32 index(int row) const {
    return static_cast<u64>(static_cast<u32>(min(row, last))) * p.page_factor >>
           (31 + p.page_shift);
  }
  __device__ __forceinline__ int lookup(int row) const { return __ldg(pages + index(row)); }
  __device__ __forceinline__ const Element* address(int row, int page) const {
    const int in_page = min(row, last) - static_cast<int>(index(row)) * p.page_size;
    return base + page * page_stride + in_page * row_stride;
  }
};

// Walks over the keys of a sequence for load_tile(). kLooksAhead: after a tile of V, the last of
// its step, the pages of the next step's rows are looked up.
template <class Element, class Ahead, bool kLooksAhead>
struct PagedRows {
  const Element* pointer;
  PageTable<Element> table;
  Ahead& ahead;
  int next_tile;  // rows to the same row of the next step
  int row, i;

  __device__ __forceinline__ void seek(int to) {
    row = to;
    i = 0;
    if (ahead.first != to) {
      ahead.first = to;
      look_up();
    }
    pointer = table.address(row, ahead.page[0]);
  }
  __device__ __forceinline__ void skip(int count) {
    row += count;
    ++i;
    if (i < Ahead::kRows) {
      pointer = table.address(row, ahead.page[i]);
    } else if constexpr (kLooksAhead) {
      ahead.first += next_tile;
      look_up();
    }
  }

 private:
  __device__ __forceinline__ void look_up() {
#pragma unroll
    for (int r = 0; r < Ahead::kRows; ++r) ahead.page[r] = table.lookup(ahead.first + r * Ahead::kStep);
  }
};

// The same with a lookup for each row, where K and V are not copied alike or not unrolled.
template <class Element>
struct SinglePagedRows {
  const Element* pointer;
  PageTable<Element> table;
  int row;

  __device__ __forceinline__ void seek(int to) {
    row = to;
    pointer = table.address(row, table.lookup(row));
  }
  __device__ __forceinline__ void skip(int count) { seek(row + count); }
};

template <class Config>
class VarlenAddressing {
 public:
  using Element = typename Config::Element;

  __device__ __forceinline__ VarlenAddressing(const AttentionVarlenParams& params,
                                              const Piece& piece)
      : p_(params),
        s_(piece.sequence),
        group_(static_cast<u32>(params.call.heads) / static_cast<u32>(params.call.heads_kv)),
        h_kv_(piece.h_kv),
        first_row_(piece.first_row) {}

  template <bool kExact>
  __device__ __forceinline__ TileRows tile_rows(int tile_row, int count) const {
    const int shift = s_.len_kv - s_.len_q;
    const int first = min(first_row_ + tile_row, all_rows() - 1);
    const int last = min(first + count, all_rows()) - 1;
    return {s_.b, query(first).row + shift, query(last).row + shift, s_.len_q, s_.len_kv};
  }
  __device__ __forceinline__ int rows() const {
    return min(Config::kBlockQ, all_rows() - first_row_);
  }
  __device__ __forceinline__ Position position(int tile_row, int kv) const {
    const Query at = query(min(first_row_ + tile_row, all_rows() - 1));
    const int q = at.row + s_.len_kv - s_.len_q, key = min(kv, s_.len_kv - 1);
    return {s_.b, at.h, h_kv_, at.row, q, key, s_.len_q, s_.len_kv, to_float(q - key)};
  }

  __device__ __forceinline__ auto q_rows() const {
    const AttentionParams& p = p_.call;
    return PackedRows{nullptr, *this,
                      static_cast<const Element*>(p.q) + s_.b * p.q_batch + s_.first_q * p.q_row,
                      0};
  }
  template <class Tile>
  __device__ __forceinline__ auto k_rows() const {
    const AttentionParams& p = p_.call;
    return key_rows<false>(p.k, p.k_batch, p.k_row, p.k_head);
  }
  template <class Tile>
  __device__ __forceinline__ auto v_rows() const {
    const AttentionParams& p = p_.call;
    return key_rows<true>(p.v, p.v_batch, p.v_row, p.v_head);
  }
  __device__ __forceinline__ Element* out_row(int tile_row) const {
    const AttentionParams& p = p_.call;
    const Query at = query(first_row_ + tile_row);
    return static_cast<Element*>(p.out) + s_.b * p.out_batch + at.h * p.out_head +
           static_cast<i64>(s_.first_q + at.row) * p.out_row;
  }
  __device__ __forceinline__ bool wants_lse() const { return p_.call.lse != nullptr; }
  __device__ __forceinline__ float* lse(int tile_row) const {
    const Query at = query(first_row_ + tile_row);
    return p_.call.lse + s_.b * p_.call.lse_batch + at.h * p_.call.lse_head + s_.first_q + at.row;
  }

 private:
  struct Query {
    int row, h;
  };
  // As DenseAddressing's.
  struct PackedRows {
    const Element* pointer;
    const VarlenAddressing& tile;
    const Element* base;
    int row;

    __device__ __forceinline__ void seek(int to) {
      row = to;
      const Query at = tile.query(tile.first_row_ + row);
      pointer = base + at.h * tile.p_.call.q_head + at.row * tile.p_.call.q_row;
    }
    __device__ __forceinline__ void skip(int count) { seek(row + count); }
  };

  template <bool kIsLast>
  __device__ __forceinline__ auto key_rows(const void* keys, i64 batch, i64 row, i64 head) const {
    const Element* const base = static_cast<const Element*>(keys) + opaque(h_kv_) * head;
    if constexpr (Config::kPaged) {
      const PageTable<Element> table{p_,   p_.block_table + s_.b * p_.block_table_row,
                                     s_.len_kv - 1, base, batch, row};
      if constexpr (kLooksAhead) {
        constexpr int kNext = Config::kBlockKv * Config::kTeams;
        return PagedRows<Element, Ahead, kIsLast>{nullptr, table, ahead_, kNext, 0, 0};
      } else {
        return SinglePagedRows<Element>{nullptr, table, 0};
      }
    } else {
      return StridedRows<Element>{base + opaque(s_.b) * batch + s_.first_k * row, row};
    }
  }
  __device__ __forceinline__ int all_rows() const { return s_.len_q * static_cast<int>(group_); }
  __device__ __forceinline__ Query query(int row) const {
    const u32 in_group = static_cast<u32>(row) % group_;
    return {static_cast<int>(static_cast<u32>(row) / group_),
            h_kv_ * static_cast<int>(group_) + static_cast<int>(in_group)};
  }

  using K = typename AttentionTiles<Config>::K;
  using V = typename AttentionTiles<Config>::V;
  static constexpr bool kLooksAhead = Config::kAligned && K::kRowStep == V::kRowStep;
  using Ahead = PagesAhead<K::kThreadRows, K::kRowStep>;

  const AttentionVarlenParams& p_;
  Sequence s_;
  u32 group_;
  int h_kv_, first_row_;
  mutable Ahead ahead_;
};

}  // namespace kiln
