// The part of the closed list of kernels that compile tests walk, for quantising activations.
#pragma once

#include <vector>

#include "jit/op/specialization.h"

namespace kiln {

std::vector<Specialization> quantize_samples(int arch);

}  // namespace kiln
