// Copies the keys and values of a cache, where so many queries read them that attention would
// gather or widen each many times. What they are copied to is contiguous and has 16 bits; of a
// quantised cache, every byte is exact in either type, and scales are left to attention. The launch
// has copy_keys_ctas() CTAs of kCopyKeysThreads threads; those of keys that no query sees, or
// behind a sequence's last one, end at once.
#pragma once
#include "/kiln/attention/cache.cuh"
#include "/kiln/attention/varlen/pages.cuh"
#include "/kiln/attention/varlen/sequences.cuh"
#include "/kiln/base/pack.cuh"
#include "/kiln/copy_keys/params.h"

namespace kiln {

using CopyParams = CopyKeysParams<AttentionVarlenParams>;

// Two words of two elements each, of four bytes.
template <class Keys, class Element>
__device__ __forceinline__ uint2 widened_to(u32 bytes) {
  u32 pairs[2];
  widen<Keys, false>(bytes, pairs[0], pairs[1]);
  if constexpr (!is_same<Element, f16>) {
#pragma unroll
    for (u32& pair : pairs) {
      const float low = to_float(f16{static_cast<u16>(pair)});
      const float high = to_float(f16{static_cast<u16>(pair >> 16)});
      pair = pack2<Element>(low, high);
    }
  }
  return {pairs[0], pairs[1]};
}

// Config: Element, of 16 bits, and CacheElement, which is Element or has one byte.
template <class Config>
class KeyCopier {
  struct Keys {
    using Element = typename Config::CacheElement;
    static constexpr bool kHardware = true;  // of sm_90
  };
  static constexpr int kBytes = sizeof(typename Keys::Element);
  static constexpr int kAhead = 4;                 // reads of 16 bytes under way
  static constexpr int kMostPieces = 16 * kBytes;  // of a row, which has up to 256 elements

 public:
  __device__ __forceinline__ KeyCopier(const CopyParams& params, const Sequence& sequence, int h_kv,
                                       int first)
      : p_(params), s_(sequence), h_kv_(h_kv), first_(first) {
    // The row of a packed sequence's first key is 0, that of padded ones is behind the padding.
    row_shift_ = p_.call.packed_keys != 0 ? 0 : s_.first_k;
    count_ = min(min(kCopiedRows, s_.len_kv - first_), p_.rows - row_shift_ - first_);
  }

  // `source` has the strides of `batch`, `row` and `head`; `dim` elements of each row are copied.
  __device__ __forceinline__ void copy_rows(const void* source, i64 batch, i64 row, i64 head,
                                            void* destination, int dim) const {
    const int pieces = dim * kBytes / 16, all = count_ * pieces;
    const int factor = ceil_div(65536, pieces);  // x / pieces is x * factor >> 16 for x < 2048
    static_assert(kCopiedRows * kMostPieces <= 2048, "copy_keys: a block's pieces are few");
    const u8* const of_head = static_cast<const u8*>(source) + h_kv_ * head * kBytes;
    const i64 first_row =
        (static_cast<i64>(s_.b) * p_.call.call.heads_kv + h_kv_) * p_.rows + row_shift_ + first_;
    constexpr int kWritten = 2 / kBytes;  // for each piece that is read
    uint4* const to = static_cast<uint4*>(destination) + first_row * pieces * kWritten;
#pragma unroll 1
    for (int begin = threadIdx.x; begin < all; begin += kAhead * kCopyKeysThreads) {
      uint4 bytes[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int piece = begin + i * kCopyKeysThreads;
        if (piece >= all) break;
        const int in_block = piece * factor >> 16;
        const u8* const from = of_head + place(in_block, batch, row) * kBytes;
        bytes[i] = *reinterpret_cast<const uint4*>(from + (piece - in_block * pieces) * 16);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int piece = begin + i * kCopyKeysThreads;
        if (piece >= all) break;
        if constexpr (kWritten == 1) {
          to[piece] = bytes[i];
        } else {
          to[piece * 2] = both(bytes[i].x, bytes[i].y);
          to[piece * 2 + 1] = both(bytes[i].z, bytes[i].w);
        }
      }
    }
  }

 private:
  // Where the block's key `in_block` lies, from the head's first element.
  __device__ __forceinline__ i64 place(int in_block, i64 batch, i64 row) const {
    const AttentionVarlenParams& p = p_.call;
    const int key = s_.first_k + first_ + in_block;
    if (p.block_table == nullptr) return s_.entry * batch + key * row;
    const PagePlace at = page_place(p, key);
    return __ldg(p.block_table + s_.entry * p.block_table_row + at.column) * batch + at.row * row;
  }
  __device__ __forceinline__ static uint4 both(u32 first, u32 second) {
    const uint2 a = widened_to<Keys, typename Config::Element>(first);
    const uint2 b = widened_to<Keys, typename Config::Element>(second);
    return {a.x, a.y, b.x, b.y};
  }

  const CopyParams& p_;
  Sequence s_;
  int h_kv_, first_, row_shift_, count_;
};

template <class Config>
__device__ __forceinline__ void copy_keys(const CopyParams& p) {
  const AttentionParams& call = p.call.call;
  const u32 heads = static_cast<u32>(call.heads_kv), rest = blockIdx.x / heads;
  const u32 blocks = ceil_div(static_cast<u32>(p.rows), static_cast<u32>(kCopiedRows));
  const u32 b = rest / blocks;
  const Sequence s = sequence_at(p.call, static_cast<int>(b));
  const int first = static_cast<int>(rest - b * blocks) * kCopiedRows;
  const int first_seen = s.len_kv - s.len_q - p.reach;
  if (first >= s.len_kv || first + kCopiedRows <= first_seen) return;
  if (s.len_q * p.call.group.by < p.call.least_rows) return;  // another launch reads its keys
  const KeyCopier<Config> copier(p, s, static_cast<int>(blockIdx.x - rest * heads), first);
  copier.copy_rows(call.k, call.k_batch, call.k_row, call.k_head, p.k, p.head_dim);
  copier.copy_rows(call.v, call.v_batch, call.v_row, call.v_head, p.v, p.head_dim_v);
}

}  // namespace kiln
