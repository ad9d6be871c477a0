// Tells as JSON what a call would run.
#pragma once

#include <string>

#include "jit/op/recipe.h"

namespace kiln {

// What an operator knows about its call in addition to the kernels.
struct ExplainedCall {
  const char* op;
  std::string path_note = "";  // why this template was chosen; "" = the templates' own reasons
  std::string note = "";       // an additional reason; "" = none
};

// Requires: the recipe is resolved for `device`.
std::string explain_recipe(const ExplainedCall& call, const Recipe& recipe, const UserTexts& texts,
                           const runtime::Device& device);
// The note that the tuning table named the tile, with the size at which it was measured: "M = 64".
std::string tuned_tile_note(const std::string& measured_at);
// The explanation of a call whose output is empty.
std::string explain_nothing(const char* op);

}  // namespace kiln
