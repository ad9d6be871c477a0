// flash_attention_with_kvcache with new keys and values: one launch appends them to the cache, and
// rotates them and the queries, before the others attend. Two operators, which know nothing of each
// other, as one call.
#pragma once

#include "jit/append_kv/problem.h"
#include "jit/attention/varlen.h"

namespace kiln {

struct KvCacheCall : Problem {
  AttentionProblem attention{kKvCacheNames};
  AppendProblem append;
  TensorView rotated;  // queries in out's memory

  KvCacheCall() { op = append.op = attention.op; }
  bool empty() const { return attention.empty() && append.empty(); }
};

// Requires: k_new is given. Fills `call`. Throws std::invalid_argument or TypeError.
void check_kvcache_call(const TensorView& q, const TensorView& k_cache, const TensorView& v_cache,
                        const TensorView& out, const TensorView& lse, const KvCacheOptions& options,
                        KvCacheCall& call);

// See jit/op/launch.h.
void resolve(KvCacheCall& call, const runtime::Device& device, bool may_split);
double flops_of(const KvCacheCall& call);

}  // namespace kiln
