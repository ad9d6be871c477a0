// Options of the norms from plain values, for the C entries and the operators' kernels.
#pragma once

#include <string_view>

#include "frameworks.h"
#include "kiln/norm.h"

namespace kiln::python {

// Throws ValueError for what no norm applies.
Activation norm_activation(std::string_view name, Subject subject);

}  // namespace kiln::python
