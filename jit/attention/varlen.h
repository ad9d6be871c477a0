// Calls of sequences that have lengths of their own, checked: as problem.h, into the same problem.
#pragma once

#include "jit/attention/problem.h"
#include "kiln/varlen.h"

namespace kiln {

inline constexpr AttentionNames kVarlenNames = {.op = "flash_attention_varlen"};
inline constexpr AttentionNames kKvCacheNames = {
    .op = "flash_attention_with_kvcache", .k = "k_cache", .v = "v_cache"};

// Fill `problem`, which has these names. Throw std::invalid_argument or TypeError.
void check_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                  const TensorView& out, const TensorView& lse, const VarlenOptions& options,
                  AttentionProblem& problem);
void check_kvcache(const TensorView& q, const TensorView& k_cache, const TensorView& v_cache,
                   const TensorView& out, const TensorView& lse, const KvCacheOptions& options,
                   AttentionProblem& problem);

}  // namespace kiln
