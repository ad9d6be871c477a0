// Maps a piece of work to the rows of the tensors: DenseAddressing's interface, for sequences that
// have lengths of their own. Rows are packed: the queries of all heads that share a KV head, heads
// innermost.
#pragma once
#include "/kiln/attention/addressing.cuh"
#include "/kiln/attention/cache.cuh"
#include "/kiln/attention/store.cuh"
#include "/kiln/attention/varlen/divisor.cuh"
#include "/kiln/attention/varlen/pages.cuh"
#include "/kiln/attention/varlen/work.cuh"

namespace kiln {

// Walks over the keys of a sequence, whose pages a table lists, for load_tile(). Every row is
// looked up when it is copied: with the pages of the next tile looked up ahead, and passed between
// lanes, decoding took longer on an H200, as a second CTA of the multiprocessor already hides the
// table.
template <class Element>
struct PagedRows {
  const Element* pointer;
  const AttentionVarlenParams& p;
  const int* pages;  // of the sequence
  const Element* base;
  i64 page_stride, row_stride;
  int first;      // keys before the sequence's first one
  int row, last;  // counted with these

  __device__ __forceinline__ void seek(int to) { place(first + to); }
  __device__ __forceinline__ void skip(int count) { place(row + count); }
  __device__ __forceinline__ void shift(int elements) { base += elements; }

 private:
  __device__ __forceinline__ void place(int to) {
    row = to;
    const PagePlace at = page_place(p, min(row, last));
    pointer = base + __ldg(pages + at.column) * page_stride + at.row * row_stride;
  }
};

// The same for aligned rows of bytes, whose strides fit 32 bits. With those of PagedRows, addresses
// take as many instructions as all that is done with the bytes.
template <class Element>
struct PagedByteRows {
  const Element* pointer;
  const AttentionVarlenParams& p;
  const int* pages;
  const Element* base;
  int page_stride, row_stride;
  int first, row, last;  // as PagedRows'

  __device__ __forceinline__ void seek(int to) { place(first + to); }
  __device__ __forceinline__ void skip(int count) { place(row + count); }
  __device__ __forceinline__ void shift(int elements) { base += elements; }

 private:
  __device__ __forceinline__ void place(int to) {
    row = to;
    const PagePlace at = page_place(p, min(row, last));
    const int page = __ldg(beyond(pages, at.column, sizeof(int)));
    pointer = beyond(beyond(base, page, page_stride), at.row, row_stride);
  }
  // `stride` in bytes. One instruction: the compiler would take three, and form `from` anew, as it
  // sees that strides have come from 64 bits.
  template <class T>
  __device__ __forceinline__ static const T* beyond(const T* from, int count, int stride) {
    const T* at;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(at) : "r"(count), "r"(stride), "l"(from));
    return at;
  }
};

template <class Config>
class VarlenAddressing {
 public:
  using Keys = KeysOf<Config>;
  using Key = typename Keys::Element;

  __device__ __forceinline__ VarlenAddressing(const AttentionVarlenParams& params,
                                              const Piece& piece)
      : p_(params), s_(piece.sequence), h_kv_(piece.h_kv), first_row_(piece.first_row) {
    if constexpr (kKeepsBases) {
      const AttentionParams& p = p_.call;
      k_ = keys_at(p.k, p.k_batch, p.k_row, p.k_head);
      v_ = keys_at(p.v, p.v_batch, p.v_row, p.v_head);
    }
    if constexpr (kKeepsPages) pages_ = pages();
  }

  template <bool kExact>
  __device__ __forceinline__ TileRows tile_rows(int tile_row, int count) const {
    const int shift = end_of<Config>(s_) - s_.len_q;
    const int first = min(first_row_ + tile_row, all_rows() - 1);
    const int last = min(first + count, all_rows()) - 1;
    return {s_.b, query(first).row + shift, query(last).row + shift, s_.len_q, s_.len_kv, /*h=*/-1,
            h_kv_};
  }
  __device__ __forceinline__ int rows() const {
    return min(Config::kBlockQ, all_rows() - first_row_);
  }
  __device__ __forceinline__ Position position(int tile_row, int kv) const {
    const Query at = query(min(first_row_ + tile_row, all_rows() - 1));
    const int q = at.row + end_of<Config>(s_) - s_.len_q, key = min(kv, s_.len_kv - 1);
    return {s_.b, at.h, h_kv_, at.row, q, key, s_.len_q, s_.len_kv, to_float(q - key), s_.first_q};
  }

  __device__ __forceinline__ auto q_rows() const {
    const AttentionParams& p = p_.call;
    using Element = typename Keys::Query;
    const auto* base = static_cast<const Element*>(p.q) + s_.b * p.q_batch + s_.first_q * p.q_row;
    return PackedRows<VarlenAddressing, Element>{nullptr, *this, base, 0};
  }
  __device__ __forceinline__ i64 query_offset(int tile_row) const {
    const Query at = query(first_row_ + tile_row);
    return at.h * p_.call.q_head + at.row * p_.call.q_row;
  }
  __device__ __forceinline__ auto k_rows() const {
    const AttentionParams& p = p_.call;
    return key_rows(kKeepsBases ? k_ : keys_at(p.k, p.k_batch, p.k_row, p.k_head), p.k_batch,
                    p.k_row);
  }
  __device__ __forceinline__ auto v_rows() const {
    const AttentionParams& p = p_.call;
    return key_rows(kKeepsBases ? v_ : keys_at(p.v, p.v_batch, p.v_row, p.v_head), p.v_batch,
                    p.v_row);
  }
  __device__ __forceinline__ auto out_row(int tile_row) const {
    const AttentionParams& p = p_.call;
    const Query at = query(first_row_ + tile_row);
    return static_cast<typename OutputsOf<Config>::Element*>(p.out) + s_.b * p.out_batch +
           at.h * p.out_head + static_cast<i64>(s_.first_q + at.row) * p.out_row;
  }
  // The factors of logits and of values of a quantised cache.
  struct LogitScale {
    float call, q, k;
    __device__ __forceinline__ explicit operator float() const {
      return call * (q * k * Keys::kUnit);
    }
  };
  __device__ __forceinline__ LogitScale logit_scale(float call) const {
    return {call, scale_at(p_.q_scale, s_.b, h_kv_), scale_at(p_.k_scale, s_.b, h_kv_)};
  }
  __device__ __forceinline__ float value_scale() const {
    return scale_at(p_.v_scale, s_.b, h_kv_) * Keys::kUnit;
  }
  __device__ __forceinline__ float out_scale() const { return __ldg(p_.out_scale); }
  __device__ __forceinline__ bool wants_lse() const { return p_.call.lse != nullptr; }
  __device__ __forceinline__ float* lse(int tile_row) const {
    const Query at = query(first_row_ + tile_row);
    return p_.call.lse + s_.b * p_.call.lse_batch + at.h * p_.call.lse_head + s_.first_q + at.row;
  }

 private:
  struct Query {
    int row, h;
  };
  __device__ __forceinline__ const int* pages() const {
    return p_.block_table + s_.entry * p_.block_table_row;
  }
  // Keys or values of this piece's head: of the sequence or, paged, of the first page.
  __device__ __forceinline__ const Key* keys_at(const void* keys, i64 batch, i64 row,
                                                i64 head) const {
    const Key* const of_head = static_cast<const Key*>(keys) + opaque(h_kv_) * head;
    return Config::kPaged ? of_head : of_head + opaque(s_.entry) * batch + s_.first_k * row;
  }
  __device__ __forceinline__ auto key_rows(const Key* base, i64 batch, i64 row) const {
    const int first = s_.first_k, last = first + s_.len_kv - 1;
    if constexpr (kKeepsPages) {
      const int page_stride = static_cast<int>(batch), row_stride = static_cast<int>(row);
      return PagedByteRows<Key>{nullptr, p_, pages_, base, page_stride, row_stride, first, 0, last};
    } else if constexpr (Config::kPaged) {
      return PagedRows<Key>{nullptr, p_, pages(), base, batch, row, first, 0, last};
    } else {
      return StridedRows<Key>{base, row};
    }
  }
  __device__ __forceinline__ int all_rows() const { return s_.len_q * p_.group.by; }
  __device__ __forceinline__ Query query(int row) const {
    const int q = quotient(row, p_.group);
    return {q, (h_kv_ - q) * p_.group.by + row};
  }

  // Wider tiles form the bases for each tile of keys, as they have no four registers for them.
  static constexpr bool kKeepsBases = Config::kTeams > 1;
  static constexpr bool kKeepsPages = Keys::kQuantized && Config::kPaged && Config::kAligned;

  const AttentionVarlenParams& p_;
  Sequence s_;
  int h_kv_, first_row_;
  const Key *k_, *v_;
  const int* pages_;
};

}  // namespace kiln
