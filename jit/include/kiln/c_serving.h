/* Kiln for C: what serving engines need beside kiln/c.h, whose conventions and ABI hold here too.
 *
 * Plans are those of kiln/c.h. kiln_plan_launch takes the pointers of those tensors that were given
 * to the plan function, in this order:
 * - for merging: outs, lses, out, lse, sinks
 * - for appending: key, value, k_cache, v_cache, slot_mapping, query, query_out, q_weight,
 * k_weight, positions, cos, sin, k_scale, v_scale Neither needs a workspace.
 */
#ifndef KILN_C_SERVING_H
#define KILN_C_SERVING_H

#include "kiln/c.h"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__) && !defined(KILN_HIDE_API) /* as in kiln/export.h */
#pragma GCC visibility push(default)
#endif

/* --------------------------------------------------------------------------------- merging */

/* The base of log-sum-exps, and the order of its dimensions for each part. */
typedef enum kiln_lse_base { KILN_LSE_E = 0, KILN_LSE_2 = 1 } kiln_lse_base;
typedef enum kiln_lse_layout {
  KILN_LSE_HEADS_TOKENS = 0,
  KILN_LSE_TOKENS_HEADS = 1
} kiln_lse_layout;

typedef struct kiln_merge_states_options {
  size_t struct_size;       /* sizeof(kiln_merge_states_options) */
  int32_t base;             /* kiln_lse_base */
  int32_t layout;           /* kiln_lse_layout */
  const kiln_tensor* sinks; /* [heads]: one more logit in the merged denominator; not in lse */
} kiln_merge_states_options;

/* Merges partial results of attention, `outs` [parts, tokens, heads, head_dim] with their
 * log-sum-exps `lses`, f32, into `out` [tokens, heads, head_dim] and, if it is not NULL, `lse`. A
 * log-sum-exp of -inf or +inf counts for nothing. The rules are in kiln/merge_states.h. */
kiln_status kiln_merge_states(const kiln_tensor* outs, const kiln_tensor* lses,
                              const kiln_tensor* out, const kiln_tensor* lse,
                              const kiln_merge_states_options* options, void* stream);
kiln_status kiln_plan_merge_states(const kiln_tensor* outs, const kiln_tensor* lses,
                                   const kiln_tensor* out, const kiln_tensor* lse,
                                   const kiln_merge_states_options* options, kiln_plan** plan);

/* -------------------------------------------------------------------- attention with lengths */

/* More options of kiln_flash_attention_varlen and kiln_flash_attention_with_kvcache: KILN_I32 where
 * nothing else is said, on the device of q, like the others, and in the order of kiln/varlen.h
 * among a plan's pointers. */
typedef struct kiln_sequence_options {
  size_t struct_size;             /* sizeof(kiln_sequence_options) */
  const kiln_tensor* kv_indptr;   /* [batch + 1]: in the place of block_table, where the pages of */
  const kiln_tensor* kv_indices;  /* each sequence begin in this list of pages */
  const kiln_tensor* causal_each; /* [batch]: not 0 where a sequence is causal; with causal = 0 */
  const kiln_tensor* tree_mask;   /* KILN_I64, unsigned words too, [tokens] or [batch, len_q]: bit
                                   * j of a query's word allows key j of the sequence's new ones */
  const kiln_tensor*
      cp_seqused_k_total;  /* [batch]: how many keys all devices have of each, where */
  int64_t cp_world;        /* so many, 0 = 1, share them in runs of cp_interleave, */
  int64_t cp_rank;         /* and this one has the cp_rank-th run of each round: see */
  int64_t cp_interleave;   /* ContextParallel in kiln/varlen.h; 0 = 1 */
  const kiln_tensor* plan; /* [words]: what the next two functions have written */
} kiln_sequence_options;

/* Write the plan of calls with such arguments, which their layers share, and its words. With a NULL
 * plan they only tell the words, and with NULL words they only write. Of q, k and v nothing is
 * read, so that their data may be NULL. The rules are in kiln/varlen.h. */
kiln_status kiln_plan_attention_varlen(const kiln_tensor* q, const kiln_tensor* k,
                                       const kiln_tensor* v, const kiln_tensor* plan,
                                       int64_t* words, const kiln_varlen_options* options,
                                       void* stream);
kiln_status kiln_plan_attention_with_kvcache(const kiln_tensor* q, const kiln_tensor* k_cache,
                                             const kiln_tensor* v_cache, const kiln_tensor* plan,
                                             int64_t* words, const kiln_kvcache_options* options,
                                             void* stream);

/* More options of kiln_flash_attention_with_kvcache. With k_new, the caches are written to. */
typedef struct kiln_cache_options {
  size_t struct_size;                 /* sizeof(kiln_cache_options) */
  const kiln_tensor* cache_batch_idx; /* i32 [batch]: the cache entry, or row of pages, of each */
  const kiln_tensor* cache_leftpad;   /* i32 [batch]: how many keys of cache_seqlens are none */
  const kiln_tensor*
      k_new; /* [batch, len_new, heads_kv, head_dim]: appended behind the keys that */
  const kiln_tensor* v_new; /* cache_seqlens counts, and then attended to */
  const kiln_tensor*
      rotary_cos; /* [max_position, angles], f32 or k_new's dtype: rotates new keys */
  const kiln_tensor* rotary_sin; /* and queries as positions from cache_seqlens on */
  int32_t rotary_halves;         /* elements i and i + angles rotate together, not 2i and 2i + 1 */
  int32_t reserved;              /* 0 */
} kiln_cache_options;

/* With kiln_flash_attention_varlen and kiln_flash_attention_with_kvcache, k and v may be quantised:
 * KILN_F8_E4M3, KILN_F8_E5M2 or KILN_I8. What their elements and those of q are multiples of, f32
 * [], [1], [heads_kv] or [batch, heads_kv]; NULL = 1. With out_scale, f32 [] or [1], out is
 * KILN_F8_E4M3 and holds results divided by it. A plan's pointers have them, in this order, behind
 * block_table. */
typedef struct kiln_cache_scales {
  size_t struct_size; /* sizeof(kiln_cache_scales) */
  const kiln_tensor* q_scale;
  const kiln_tensor* k_scale;
  const kiln_tensor* v_scale;
  const kiln_tensor* out_scale;
} kiln_cache_scales;

/* ------------------------------------------------------------------------------- appending */

typedef struct kiln_append_kv_options {
  size_t struct_size;         /* sizeof(kiln_append_kv_options) */
  const kiln_tensor* k_scale; /* f32, [], [1] or [heads_kv]: of quantised caches, default 1 */
  const kiln_tensor* v_scale;
  const kiln_tensor* query;     /* [tokens, heads, head_dim]: normed and rotated like key */
  const kiln_tensor* query_out; /* like query, and may be query itself */
  const kiln_tensor* q_weight;  /* [head_dim]: RMS norms over each head, before the rotation */
  const kiln_tensor* k_weight;
  const float* eps;             /* NULL = 1e-6 */
  const kiln_tensor* positions; /* i32 or i64, [tokens]: rows of the next two */
  const kiln_tensor* cos;       /* [max_position, angles], f32 or key's dtype */
  const kiln_tensor* sin;
  int32_t interleaved; /* elements 2i and 2i + 1 rotate together, not i and i + angles */
  int32_t reserved;    /* 0 */
} kiln_append_kv_options;

/* Writes key and value, [tokens, heads_kv, head_dim] in f16 or bf16, into the slots of paged caches
 * that slot_mapping, i64 [tokens], names: [pages, page_size, heads_kv, head_dim] in key's dtype, or
 * f8_e4m3, f8_e5m2 or i8. A slot outside of the caches, such as -1, is not written. The rules are
 * in kiln/append_kv.h. */
kiln_status kiln_append_kv(const kiln_tensor* key, const kiln_tensor* value,
                           const kiln_tensor* k_cache, const kiln_tensor* v_cache,
                           const kiln_tensor* slot_mapping, const kiln_append_kv_options* options,
                           void* stream);
kiln_status kiln_plan_append_kv(const kiln_tensor* key, const kiln_tensor* value,
                                const kiln_tensor* k_cache, const kiln_tensor* v_cache,
                                const kiln_tensor* slot_mapping,
                                const kiln_append_kv_options* options, kiln_plan** plan);

#if defined(__GNUC__) && !defined(KILN_HIDE_API)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
