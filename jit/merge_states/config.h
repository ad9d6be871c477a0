// The closed table of the kernels that merge partial results, and the pure function that picks a
// row. A row's reason stands beside it in table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "jit/merge_states/problem.h"

namespace kiln {

struct MergeConfig {
  int lanes;    // threads that share the columns of a token's head
  int vectors;  // accesses of each of them at a time
  int parts;    // parts that are read at a time
  bool few;     // only for as many parts as are read at a time
  std::string_view reason;

  int accesses() const { return lanes * vectors; }  // of a row of columns at a time
  bool serves(int all_parts) const { return !few || all_parts <= parts; }
};

std::span<const MergeConfig> merge_configs();
std::string tile_name(const MergeConfig& config);  // "16x1x4"

// By the columns, the vector and the parts alone, so that a row has the same result in every batch.
// The last row of the table serves any number of columns.
int choose_merge(const MergeTraits& traits, std::int64_t columns, int parts);

}  // namespace kiln
