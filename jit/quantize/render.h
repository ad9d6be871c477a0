// The specializations that quantise activations as source.
#pragma once

#include <string>

#include "jit/op/family.h"

namespace kiln {

std::string render_quantize(const Specialization& spec, const UserTexts& texts);

}  // namespace kiln
