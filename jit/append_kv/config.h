// The closed table of the kernels that append to a cache, and the pure function that picks a row. A
// row's reason stands beside it in table.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "jit/append_kv/problem.h"

namespace kiln {

struct AppendConfig {
  int rows;  // heads of tokens that a group of threads has in flight
  std::string_view reason;
};

std::span<const AppendConfig> append_configs();
std::string tile_name(const AppendConfig& config);  // "2 rows"

// By how many heads of tokens there are and what the device holds at once; all rows give the same
// bits.
int choose_append(const AppendTraits& traits, long long heads_of_tokens, int sm_count);

}  // namespace kiln
