// The specializations that choose experts as source.
#pragma once

#include <string>

#include "jit/op/family.h"

namespace kiln {

std::string render_route(const Specialization& spec, const UserTexts& texts);

}  // namespace kiln
