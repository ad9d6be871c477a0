// Rows of pages that warps of the sm_90a kernel copy: see templates/attention/sm90/gather.cuh.
#pragma once

#include "jit/op/recipe.h"

namespace kiln {

// Tells the kernel of a step where the rows of 16-bit elements are that its warps gather, for tiles
// of `block_kv` keys. False, and nothing is told, where pages and rows of keys and of values are
// not equally many places long, as in [pages, heads, rows, columns] beside [pages, rows, heads,
// columns], or where 32 bits do not count the cache's pieces of 16 bytes. Requires: strides are
// multiples of 8 elements.
bool gather_rows(Step& step, int block_kv);

}  // namespace kiln
