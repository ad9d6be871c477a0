// The norms' specializations as source.
#pragma once

#include <string>

#include "jit/op/family.h"

namespace kiln {

std::string render_norm(const Specialization& spec, const UserTexts& texts);  // norm/norm.cuh
// Of norm/split.cuh, the first launch and the second.
std::string render_norm_partial(const Specialization& spec, const UserTexts& texts);
std::string render_norm_apply(const Specialization& spec, const UserTexts& texts);

}  // namespace kiln
