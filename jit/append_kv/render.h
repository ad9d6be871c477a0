// The specializations that append to a cache as source.
#pragma once

#include <string>

#include "jit/op/family.h"

namespace kiln {

std::string render_append_kv(const Specialization& spec, const UserTexts& texts);

}  // namespace kiln
