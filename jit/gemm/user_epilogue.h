// The user's epilogue of a call: its identity, its source, and its run-time values.
#pragma once

#include <string>
#include <string_view>

#include "jit/gemm/problem.h"
#include "jit/op/user_texts.h"
#include "kiln/epilogue.h"

namespace kiln {

// The identity of an epilogue without parameters and tensors. Throws std::invalid_argument when it
// is no plain expression.
Digest128 epilogue_digest(std::string_view expression);

// Sets the epilogue, or the activation, of the call's options. Throws std::invalid_argument.
void check_epilogue(const GemmOptions& options, GemmProblem& problem);

// Checks the bound values against the call and appends them to its arguments, in the order of the
// struct that epilogue_source() prints. Requires: the sizes of `problem`, and all other arguments.
void add_epilogue_arguments(const BoundEpilogue& bound, GemmProblem& problem);

// Whether the kernel takes BoundArguments: it has values, or the expression names m or n.
bool is_bound_epilogue(const UserTexts& texts);

// struct Epilogue of these texts.
std::string epilogue_source(const GemmTraits& traits, const UserTexts& texts);

}  // namespace kiln
