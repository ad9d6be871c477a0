// The argument block of a call that appends to a cache, and the largest vectors that it admits.
#pragma once

#include "jit/append_kv/problem.h"

namespace kiln {

struct AppendTensors {
  const TensorView &key, &value, &k_cache, &v_cache, &slot_mapping;
  const AppendKvOptions& options;
};

// Requires: checked, all but the traits' vector set, which this sets.
void set_append_arguments(const AppendTensors& tensors, AppendProblem& problem);

}  // namespace kiln
