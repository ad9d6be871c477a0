// Attention over sequences that have lengths of their own, with keys in rows or in the pages of a
// KV cache: prefill and decode of a serving engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kiln/attention.h"

namespace KILN_PUBLIC kiln {

// Context parallelism: this device has a part of the keys of each sequence, in order. It is `rank`
// of `world`, and the devices have `interleave` neighbouring keys in turn, so that its key j is the
// sequence's ((j / interleave) * world + rank) * interleave + j % interleave. Lengths and pages
// tell of its own keys; masks, windows, ALiBi and variants see positions in the whole sequence.
// `lse` joins the parts: see merge_states, which also takes the sinks. Tensors of a variant may not
// be indexed by kv.
struct ContextParallel {
  std::int64_t world = 1, rank = 0, interleave = 1;
  TensorView seqused_k_total{};  // [batch]: how many keys all devices have; needed with world > 1
};

// Tensors of lengths, offsets, flags and pages are contiguous in their last dimension, i32, and on
// the device of q: a call reads none of them on the host, does not synchronise, and may be captured
// in a graph that is replayed with other contents.
struct VarlenOptions {
  TensorView cu_seqlens_q{};  // [batch + 1]: sequence b has queries cu_seqlens_q[b] up to [b + 1]
  // [batch + 1]: likewise of k and v; or, with a cache, only how many keys each sequence has.
  TensorView cu_seqlens_k{};
  TensorView seqused_k{};  // [batch]: how many keys of each are used, including the new ones
  // [batch, width]: the pages of each sequence's keys in their order. What lies behind the used
  // entries is not read.
  TensorView block_table{};
  // In the place of block_table, the pages of all sequences in one list: those of sequence b are
  // kv_indices[kv_indptr[b]] up to [kv_indptr[b + 1]]. [batch + 1] and [pages of all sequences].
  TensorView kv_indptr{};
  TensorView kv_indices{};
  // [batch]: not 0 where a sequence is causal; attention.causal must then be left as it is.
  TensorView causal_each{};
  // i64 or u64, [tokens] as q is packed, with any stride: the queries of a sequence, at most 64,
  // are its last keys, and bit j of a query's word says whether it sees the j-th of these. All see
  // the keys before. attention.causal and the window must then be left as they are.
  TensorView tree_mask{};
  ContextParallel context{};
  // f32, [] or [1]: `out` is f8_e4m3 and holds the results divided by this number, rounded to
  // nearest even from f32. What is beyond 448 saturates; NaN stays NaN. `lse` is as without it.
  TensorView out_scale{};
  // i32 [words], at a multiple of 16 bytes: what plan_attention has written for calls like this one
  // and the same lengths. Results are the same to the last bit. A launch whose heads, masks,
  // bounds or tiles are other ones than the plan's executes a trap, as the host reads no plan.
  TensorView plan{};
  // Bounds of the lengths. They decide about launches, never about results.
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0;
  // 0: several thread blocks may share the keys of a sequence. 1: none do, and the result of a
  // sequence does not depend on the others, on the bounds or on padding, to the last bit.
  std::int64_t num_splits = 0;
  // layout, top_left and attn_mask must be left as they are. causal and window count from the last
  // query and the last key of each sequence. Tensors of a variant that are indexed by row or kv
  // have max_seqlen_q or max_seqlen_k entries there; none may be indexed by q.
  AttentionOptions attention{};
};

// out = softmax(scale * q k^T, options) v, for each of `batch` sequences.
//   q [tokens, heads, head_dim], out [tokens, heads, head_dim_v]
//   k, v, one of
//     [tokens_k, heads_kv, head_dim]           packed, with cu_seqlens_k
//     [batch, len, heads_kv, head_dim]         a cache with seqused_k or cu_seqlens_k
//     [pages, page_size, heads_kv, head_dim]   a cache with block_table or kv_indptr, and one of
//                                              these
// with a last stride of 1 and any others: head-major caches and rows that hold K and V side by side
// are views. All four have the same dtype, f16 or bf16, or k and v are a quantised cache: f8_e4m3,
// f8_e5m2 or i8, whose elements are converted exactly and computed with in f16, sums in f32; or out
// is quantised, with out_scale. `lse` may be left out; it is f32 [heads, tokens] with a last stride
// of 1, the natural logarithm, without the sink. Sequences may have no queries or no keys: a query
// without visible keys gives out = 0 and lse = -infinity. Queries behind the last sequence are
// padding, for which nothing is written. Unused cache rows may hold anything. Bounds of head dims,
// logits and overlaps are those of flash_attention.
void flash_attention_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                            const TensorView& out, const TensorView& lse,
                            const VarlenOptions& options, void* stream = nullptr);
Status try_flash_attention_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                                  const TensorView& out, const TensorView& lse,
                                  const VarlenOptions& options, void* stream = nullptr) noexcept;

// Likewise, of tensors on the host's device: see VarlenOptions.
struct KvCacheOptions {
  TensorView cache_seqlens{};  // [batch]: how many keys of each sequence are in the cache
  TensorView block_table{};    // this and the next three as VarlenOptions'
  TensorView kv_indptr{};
  TensorView kv_indices{};
  TensorView causal_each{};
  TensorView tree_mask{};     // [batch, len_q], else as VarlenOptions'; not with rotary_cos
  ContextParallel context{};  // without cache_leftpad and k_new
  // [batch]: the entry of the cache that each sequence uses or, with pages, the row of block_table
  // or of kv_indptr, which may then have any number of rows. Without it, sequence b uses the b-th.
  TensorView cache_batch_idx{};
  // [batch]: how many of the keys that cache_seqlens counts, from the first on, are none. Positions
  // count from there: causal masks, windows and variants see a sequence that begins behind them.
  TensorView cache_leftpad{};
  // [batch, len_new, heads_kv, head_dim] and [.., head_dim_v]: written into the cache behind the
  // cache_seqlens[b] keys of each sequence, which do not count them, and then attended to. They
  // must fit the entry or the pages; what does not is not written.
  TensorView k_new{};
  TensorView v_new{};
  // [max_position, angles], f32 or k_new's dtype, both: the rotary embedding, as AppendKvOptions'
  // cos and sin, of new key i at position cache_seqlens[b] + i. Queries rotate likewise, but all at
  // cache_seqlens[b] where the call has no causal mask and no window. They need k_new, and a
  // v_cache whose head dim is at least q's, because rotated queries lie in out meanwhile.
  TensorView rotary_cos{};
  TensorView rotary_sin{};
  bool rotary_interleaved = true;  // elements 2i and 2i + 1 rotate together, not i and i + angles
  TensorView out_scale{};          // as VarlenOptions', but not with rotary_cos
  TensorView plan{};               // as VarlenOptions', but not with k_new
  std::int64_t num_splits = 0;     // as VarlenOptions'
  AttentionOptions attention{};    // as VarlenOptions'
};

// The same for sequences that all have len_q queries:
//   q [batch, len_q, heads, head_dim], out [batch, len_q, heads, head_dim_v],
//   k_cache, v_cache [batch, len, heads_kv, head_dim] or, with block_table,
//   [pages, page_size, heads_kv, head_dim]; lse, if given, [batch, heads, len_q].
// With k_new, the caches are written to: one launch appends to them before the others attend.
void flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                  const TensorView& v_cache, const TensorView& out,
                                  const TensorView& lse, const KvCacheOptions& options,
                                  void* stream = nullptr);
Status try_flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                        const TensorView& v_cache, const TensorView& out,
                                        const TensorView& lse, const KvCacheOptions& options,
                                        void* stream = nullptr) noexcept;

// Writes the plan of calls with such arguments: what each thread block computes, which it would
// otherwise work out by itself from the lengths of all sequences, in each layer of a step. One or
// two launches, after which calls with this `plan`, the same lengths and, of the options, the same
// masks, softcap, alibi_slopes, variant, num_splits and tensors that are given or left out may be
// made, of any layer whose q, k and v have these shapes, dtypes and alignments. Of q, k and v
// nothing is read, so that their data may be null; scales and sinks play no part. It reads no
// length on the host and does not synchronise; captured in a graph with the calls, it plans each
// replay anew. attention.workspace must be given where calls are given one, and is not used:
// without one, their launches are others. Prefill of sm_90a needs no plan, and has no launch here,
// where it draws its tiles and where one sequence is alone.
void plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                    const TensorView& plan, const VarlenOptions& options, void* stream = nullptr);
void plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                    const TensorView& plan, const KvCacheOptions& options, void* stream = nullptr);
Status try_plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& plan, const VarlenOptions& options,
                          void* stream = nullptr) noexcept;
Status try_plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& plan, const KvCacheOptions& options,
                          void* stream = nullptr) noexcept;
// A contiguous view with as many words as such plans have at most, which their shapes tell, and a
// null pointer.
TensorView plan_attention_output(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const VarlenOptions& options);
TensorView plan_attention_output(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const KvCacheOptions& options);
// As JSON, likewise.
std::string explain_plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                   const TensorView& plan, const VarlenOptions& options);
std::string explain_plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                   const TensorView& plan, const KvCacheOptions& options);

// Contiguous views with the shapes of `out` and `lse` for these inputs and null pointers; out has
// q's dtype if `out_dtype` is none.
TensorView flash_attention_varlen_output(const TensorView& q, const TensorView& v,
                                         DType out_dtype = DType::none);
TensorView flash_attention_varlen_lse_output(const TensorView& q);
TensorView flash_attention_with_kvcache_output(const TensorView& q, const TensorView& v_cache,
                                               DType out_dtype = DType::none);
TensorView flash_attention_with_kvcache_lse_output(const TensorView& q);

// Plan::launch takes the pointers of those of q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k,
// seqused_k, block_table or kv_indices, kv_indptr, cache_batch_idx, cache_leftpad, seqused_k_total,
// q_scale, k_scale, v_scale, out_scale, plan, alibi_slopes, causal_each, tree_mask and sinks that
// were given, then those of the variant's tensors, and last k_new, v_new, rotary_cos and
// rotary_sin; with a KV cache, cache_seqlens stands in the place of seqused_k. Rules are those of
// plan_flash_attention.
Plan plan_flash_attention_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const TensorView& out, const TensorView& lse,
                                 const VarlenOptions& options);
Plan plan_flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                       const TensorView& v_cache, const TensorView& out,
                                       const TensorView& lse, const KvCacheOptions& options);

// `plan` is empty unless the Status is ok.
Status try_plan_flash_attention_varlen(const TensorView& q, const TensorView& k,
                                       const TensorView& v, const TensorView& out,
                                       const TensorView& lse, const VarlenOptions& options,
                                       std::optional<Plan>& plan) noexcept;
Status try_plan_flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                             const TensorView& v_cache, const TensorView& out,
                                             const TensorView& lse, const KvCacheOptions& options,
                                             std::optional<Plan>& plan) noexcept;

// Tell as JSON what a call would run, without running it: see explain in kiln/control.h.
std::string explain_flash_attention_varlen(const TensorView& q, const TensorView& k,
                                           const TensorView& v, const TensorView& out,
                                           const TensorView& lse, const VarlenOptions& options);
std::string explain_flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                                 const TensorView& v_cache, const TensorView& out,
                                                 const TensorView& lse,
                                                 const KvCacheOptions& options);

}  // namespace KILN_PUBLIC kiln
