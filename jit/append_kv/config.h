// The closed table of the kernels that append to a cache, and the pure function that picks a row. A
// row's reason stands beside it in table.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "jit/append_kv/problem.h"

namespace kiln {

struct AppendConfig {
  int rows;   // heads of a token that a group of threads walks over
  int ahead;  // of these, how many are on their way from memory at a time
  std::string_view reason;
};

std::span<const AppendConfig> append_configs();
std::string tile_name(const AppendConfig& config);  // "2 rows"

// Whether some call of these traits takes the row. To copy whole vectors, none walks.
bool may_choose(const AppendTraits& traits, int row);

// By how many heads of tokens there are and what the device holds at once; all rows give the same
// bits.
int choose_append(const AppendProblem& problem, int sm_count);

}  // namespace kiln
