// Rows of pages that warps of the sm_90a kernel copy: see templates/attention/sm90/gather.cuh.
#pragma once

#include "jit/op/recipe.h"

namespace kiln {

// Tells the kernel of a step where the rows are that its warps gather, for tiles of `block_kv`
// keys. False, and nothing is told, where no number of places does for keys and values alike, or
// where they need more than 32 bits.
bool gather_rows(Step& step, int block_kv);

}  // namespace kiln
