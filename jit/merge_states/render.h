// The specializations that merge partial results as source.
#pragma once

#include <string>

#include "jit/op/family.h"

namespace kiln {

std::string render_merge_states(const Specialization& spec, const UserTexts& texts);

}  // namespace kiln
