// The options of the norms of kiln/c.h.
#pragma once

#include "kiln/c.h"
#include "kiln/norm.h"

namespace kiln {

// `op`: the operation that messages name. Null options are the defaults.
NormOptions options_of(const char* op, const kiln_norm_options* options);

}  // namespace kiln
