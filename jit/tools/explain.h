// What a call would run, as JSON.
#pragma once

#include <string>

#include "jit/op/recipe.h"

namespace kiln {

// What an operator knows of its call beyond the kernels.
struct ExplainedCall {
  const char* op;
  std::string path_note = "";  // why this template and no other; "" = what the templates say
  std::string note = "";       // one more reason; "" = none
};

// Requires: the recipe is resolved for `device`.
std::string explain_recipe(const ExplainedCall& call, const Recipe& recipe, const UserTexts& texts,
                           const runtime::Device& device);
// Of a call whose output is empty.
std::string explain_nothing(const char* op);

}  // namespace kiln
