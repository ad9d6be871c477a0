// Calls of sequences that have lengths of their own, checked: as problem.h, into the same problem.
#pragma once

#include "jit/attention/problem.h"
#include "kiln/varlen.h"

namespace kiln {

inline constexpr AttentionNames kVarlenNames = {.op = "flash_attention_varlen"};
inline constexpr AttentionNames kKvCacheNames = {
    .op = "flash_attention_with_kvcache", .k = "k_cache", .v = "v_cache"};

// The dimensions of packed tensors, of caches, and of queries beside a cache.
inline constexpr const char* kPackedLayout = "[tokens, heads, head_dim]";
inline constexpr const char* kCacheLayout =
    "[batch or pages, length or page_size, heads, head_dim]";
inline constexpr const char* kDenseLayout = "[batch, len_q, heads, head_dim]";

// Fill `problem`, which has these names. Throw std::invalid_argument or TypeError.
void check_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                  const TensorView& out, const TensorView& lse, const VarlenOptions& options,
                  AttentionProblem& problem);
void check_kvcache(const TensorView& q, const TensorView& k_cache, const TensorView& v_cache,
                   const TensorView& out, const TensorView& lse, const KvCacheOptions& options,
                   AttentionProblem& problem);

// A call whose tensors have rows before heads; a problem refers to its members.
struct RowsFirst {
  TensorView q, k, v, out;
  AttentionOptions options;
};
// The same for flash_attention with q, k and v of 8 bits, which is computed as sequences of one
// length. `call` must outlive the problem.
void check_byte_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options, RowsFirst& call,
                          AttentionProblem& problem);

}  // namespace kiln
