// Options of merging from plain values, for the C entries and the operators' kernels.
#pragma once

#include <string_view>

#include "kiln/merge_states.h"

namespace kiln::python {

// Throw ValueError for other names.
LseBase lse_base(std::string_view name);
LseLayout lse_layout(std::string_view name);

}  // namespace kiln::python
