// The part of the closed list of kernels that compile tests walk, for appending to a cache.
#pragma once

#include <vector>

#include "jit/op/specialization.h"

namespace kiln {

std::vector<Specialization> append_samples(int arch);

}  // namespace kiln
