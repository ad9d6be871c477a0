// The sequences of a call: where their queries and keys lie, and how many there are.
#pragma once
#include "/kiln/attention/arguments.cuh"
#include "/kiln/attention/params.h"
#include "/kiln/attention/tiles.cuh"

namespace kiln {

// The kernel's parameters: as AttentionArgs.
template <class Variant>
struct AttentionVarlenArgs : AttentionVarlenParams, Variant {
  static_assert(__is_empty(Variant) || sizeof(Variant) == Variant::kBytes,
                "flash_attention: a variant may hold only Slots and VariantTensors");

  __device__ __forceinline__ const AttentionVarlenParams& params() const { return *this; }
  __device__ __forceinline__ const Variant& variant() const { return *this; }
};

struct Sequence {
  int b = 0;
  int entry = 0;  // of the cache, or the row of the block table, or its place in the list of pages
  int first_q = 0, len_q = 0;  // packed queries: the sequence's first one, else 0
  // Packed keys: the sequence's first one. In a cache, how many come before it.
  int first_k = 0, len_kv = 0;
  int total = 0;  // where keys are spread over devices, of all of them
};

__device__ __forceinline__ int entry_at(const AttentionVarlenParams& p, int b) {
  const int entry = p.cache_batch_idx != nullptr ? __ldg(p.cache_batch_idx + b) : b;
  return p.kv_indptr != nullptr ? __ldg(p.kv_indptr + entry) : entry;
}

__device__ __forceinline__ Sequence sequence_at(const AttentionVarlenParams& p, int b) {
  Sequence s;
  s.b = b;
  s.entry = entry_at(p, b);
  s.len_q = p.call.len_q;
  s.len_kv = p.call.len_kv;
  if (p.cu_seqlens_q != nullptr) {
    s.first_q = __ldg(p.cu_seqlens_q + b);
    s.len_q = __ldg(p.cu_seqlens_q + b + 1) - s.first_q;
  }
  if (p.cu_seqlens_k != nullptr) {
    const int first = __ldg(p.cu_seqlens_k + b);
    s.len_kv = __ldg(p.cu_seqlens_k + b + 1) - first;
    if (p.packed_keys != 0) s.first_k = first;
  }
  if (p.seqused_k != nullptr) s.len_kv = __ldg(p.seqused_k + b) + p.new_keys;
  if (p.cache_leftpad != nullptr) {
    s.first_k = __ldg(p.cache_leftpad + b);
    s.len_kv -= s.first_k;
  }
  s.len_q = max(s.len_q, 0);
  s.len_kv = max(s.len_kv, 0);
  return s;
}

// The position behind the last key of a sequence.
template <class Config>
__device__ __forceinline__ int end_of(const Sequence& s) {
  return Config::kSpread ? s.total : s.len_kv;
}

// All queries of a sequence, as a variant is asked about them.
template <class Config>
__device__ __forceinline__ TileRows rows_of(const Sequence& s) {
  const int end = end_of<Config>(s);
  return {s.b, end - s.len_q, end - 1, s.len_q, s.len_kv};
}

__device__ __forceinline__ float scale_at(const AttentionScale& scale, int b, int h_kv) {
  return scale.at == nullptr ? 1.0f : __ldg(scale.at + b * scale.batch + h_kv * scale.head);
}
// The factor of logits of a quantised cache.
__device__ __forceinline__ float logit_scale_at(const AttentionVarlenParams& p, int b, int h_kv) {
  return scale_at(p.q_scale, b, h_kv) * scale_at(p.k_scale, b, h_kv);
}

}  // namespace kiln
