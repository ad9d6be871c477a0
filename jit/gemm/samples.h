// GEMM's part of the closed list of kernels that compile tests walk.
#pragma once

#include <vector>

#include "jit/op/specialization.h"

namespace kiln {

std::vector<Specialization> gemm_samples(int arch);

}  // namespace kiln
