// Quantised KV caches and outputs: their dtypes, and what their elements are multiples of.
#pragma once

#include "jit/attention/problem.h"
#include "jit/op/checks.h"
#include "templates/attention/params.h"

namespace kiln {

// k has q's dtype or is quantised, and v has k's.
void check_cache_dtypes(const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionProblem& problem);

// The scales of a call; one that is not given is 1, and without out's results are not quantised.
struct CacheScales {
  const TensorView& q;
  const TensorView& k;
  const TensorView& v;
  const TensorView& out;
};
// `dtype` is the cache's; the problem's batch and heads are known.
void check_scales(const CacheScales& scales, DType dtype, const AttentionProblem& problem);
// With a scale, out is quantised; without one, it has q's dtype, which is `dtype`, or is f16 or
// bf16 where that is of one byte.
void check_out_scale(const TensorView& scale, DType dtype, const TensorView& out,
                     const AttentionProblem& problem);
void set_scales(const CacheScales& scales, AttentionVarlenParams& params);
void add_scales(const CacheScales& scales, AttentionProblem& problem);

}  // namespace kiln
