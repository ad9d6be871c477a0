// The specializations that sort rows and add them up as source.
#pragma once

#include <string>

#include "jit/op/family.h"

namespace kiln {

std::string render_count(const Specialization& spec, const UserTexts& texts);
std::string render_sort(const Specialization& spec, const UserTexts& texts);
std::string render_unpermute(const Specialization& spec, const UserTexts& texts);

}  // namespace kiln
