// Quantised KV caches: the dtypes of keys and values, and what their elements are multiples of.
#pragma once

#include "jit/attention/problem.h"
#include "jit/op/checks.h"
#include "templates/attention/params.h"

namespace kiln {

// k has q's dtype or is quantised, and v has k's.
void check_cache_dtypes(const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionProblem& problem);

// The scales of a call; one that is not given is 1.
struct CacheScales {
  const TensorView& q;
  const TensorView& k;
  const TensorView& v;
};
// `dtype` is the cache's; the problem's batch and heads are known.
void check_scales(const CacheScales& scales, DType dtype, const AttentionProblem& problem);
void set_scales(const CacheScales& scales, AttentionVarlenParams& params);
void add_scales(const CacheScales& scales, AttentionProblem& problem);

}  // namespace kiln
