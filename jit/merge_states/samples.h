// The part of the closed list of kernels that compile tests walk, for merging partial results.
#pragma once

#include <vector>

#include "jit/op/specialization.h"

namespace kiln {

std::vector<Specialization> merge_samples(int arch);

}  // namespace kiln
