// Checks that both ways to append to a cache share: tokens with slots of their own, and tokens of
// sequences.
#pragma once

#include "jit/append_kv/problem.h"
#include "jit/op/checks.h"

namespace kiln {

// Every tensor of a call has to pass these checks, beside that of its shape.
inline void check_given(Subject subject, const TensorView& tensor, const AppendProblem& problem) {
  check_tensor(subject, tensor, problem.device_ordinal);
  check_data(subject, tensor, problem.may_be_null);
}

// Counts what the launch computes, into the problem. `name`: of the tensor that has the tokens.
void check_heads_of_tokens(const char* name, std::int64_t tokens, std::int64_t heads,
                           std::int64_t heads_kv, AppendProblem& problem);
void check_slot_count(const TensorView& k_cache, const AppendProblem& problem);
// A table of cosines or sines, which has the shape and dtype of the first one.
void check_angles(const char* name, const TensorView& table, const char* cos_name,
                  const TensorView& cos, const AppendProblem& problem);

}  // namespace kiln
