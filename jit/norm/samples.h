// The norms' part of the closed list of kernels that compile tests walk.
#pragma once

#include <vector>

#include "jit/norm/problem.h"
#include "jit/op/specialization.h"

namespace kiln {

std::vector<Specialization> norm_samples(NormKind kind, int arch);

}  // namespace kiln
