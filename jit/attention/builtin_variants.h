// The built-in variants of an attention call: what the kernel is specialised for, and their
// run-time words in the order in which variant_source() lists them.
#pragma once

#include "jit/attention/problem.h"

namespace kiln {

// Fills the traits but for those of the tensors and of the user's variant, and `keys`. Throws
// std::invalid_argument or TypeError.
void add_builtin_variants(const AttentionOptions& options, AttentionProblem& problem);

}  // namespace kiln
