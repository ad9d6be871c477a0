// Which rows of which tensors a CTA works on. All pointer arithmetic of the attention kernels is
// here, so that another storage of Q and KV is another class with these functions.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/attention/variant.cuh"

namespace kiln {

// Keeps the compiler from folding what is added to the address into what it was computed from.
template <class T>
__device__ __forceinline__ T* opaque(T* address) {
  asm("" : "+l"(address));
  return address;
}

// Every batch entry has the same lengths, every tensor its strides.
template <class Config>
class DenseAddressing {
 public:
  using Element = typename Config::Element;

  // CTA -> query tile of a head. Heads that share a KV head are neighbours, so that their keys come
  // from L2. KV heads are taken in groups whose keys and values fit there; within a group the last
  // query tiles come first, since under a causal mask they take longest.
  __device__ __forceinline__ explicit DenseAddressing(const AttentionParams& params) : p_(params) {
    constexpr u32 kGroupBytes = 24 << 20;
    const u32 sharing = p_.heads / p_.heads_kv;
    const u32 kv_heads = static_cast<u32>(p_.batch) * p_.heads_kv;
    const u32 tiles = ceil_div(p_.len_q, Config::kBlockQ);
    const u64 head_bytes = (Config::kHeadDim + Config::kHeadDimV) * 2ull * max(p_.len_kv, 1);
    const u32 fitting = head_bytes < kGroupBytes ? kGroupBytes / static_cast<u32>(head_bytes) : 1;
    const u32 group = min(fitting, kv_heads);
    const u32 first = blockIdx.x / (group * sharing * tiles) * group;
    const u32 width = min(group, kv_heads - first) * sharing;
    const u32 index = blockIdx.x - first * sharing * tiles;
    const u32 column = index % width;
    const u32 kv_head = first + column / sharing;
    b_ = kv_head / p_.heads_kv;
    h_kv_ = kv_head % p_.heads_kv;
    h_ = h_kv_ * sharing + column % sharing;
    first_row_ = (tiles - 1 - index / width) * Config::kBlockQ;
    k_ = static_cast<const Element*>(p_.k) + b_ * p_.k_batch + h_kv_ * p_.k_head;
    v_ = static_cast<const Element*>(p_.v) + b_ * p_.v_batch + h_kv_ * p_.v_head;
  }

  __device__ __forceinline__ TileRows tile_rows() const {
    const int shift = p_.len_kv - p_.len_q;
    const int last_row = min(first_row_ + Config::kBlockQ, p_.len_q) - 1;
    return {b_, first_row_ + shift, last_row + shift, p_.len_q, p_.len_kv};
  }
  // Rows of the query tile that exist.
  __device__ __forceinline__ int rows() const {
    return min(Config::kBlockQ, p_.len_q - first_row_);
  }

  // `tile_row` counts from the query tile's first row; kv from the sequence's first key.
  __device__ __forceinline__ Position position(int tile_row, int kv) const {
    const int row = min(first_row_ + tile_row, p_.len_q - 1);
    const int shift = p_.len_kv - p_.len_q;
    return {b_, h_, h_kv_, row, row + shift, min(kv, p_.len_kv - 1), p_.len_q, p_.len_kv};
  }
  // The rows tile_row + ahead and kv + ahead; see load_tile().
  __device__ __forceinline__ const Element* q_row(int tile_row, int ahead) const {
    const i64 row = first_row_ + tile_row;
    return opaque(static_cast<const Element*>(p_.q) + b_ * p_.q_batch + h_ * p_.q_head +
                  row * p_.q_row) +
           ahead * p_.q_row;
  }
  __device__ __forceinline__ const Element* k_row(int kv, int ahead) const {
    return opaque(k_ + static_cast<u32>(kv) * p_.k_row) + ahead * p_.k_row;
  }
  __device__ __forceinline__ const Element* v_row(int kv, int ahead) const {
    return opaque(v_ + static_cast<u32>(kv) * p_.v_row) + ahead * p_.v_row;
  }
  __device__ __forceinline__ Element* out_row(int tile_row) const {
    const i64 row = first_row_ + tile_row;
    return static_cast<Element*>(p_.out) + b_ * p_.out_batch + h_ * p_.out_head + row * p_.out_row;
  }
  __device__ __forceinline__ bool wants_lse() const { return p_.lse != nullptr; }
  __device__ __forceinline__ float* lse(int tile_row) const {
    return p_.lse + b_ * p_.lse_batch + h_ * p_.lse_head + (first_row_ + tile_row);
  }

 private:
  const AttentionParams& p_;
  int b_, h_, h_kv_, first_row_;
  const Element* k_;
  const Element* v_;
};

}  // namespace kiln
