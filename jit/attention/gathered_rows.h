// How the sm_90a kernel gets the rows of pages: by boxes of the copy engine, or by warps that
// gather them, see templates/attention/sm90/gather.cuh.
#pragma once

#include "jit/attention/problem.h"

namespace kiln {

// Keys of a page of the call's first step; 1 where padding moves the keys of tiles, so that boxes
// would straddle pages, and 0 where there are no pages.
int page_of(const AttentionProblem& problem);
// The copy engine takes hardly longer than the products for boxes of so many rows, and far longer
// for smaller ones.
inline constexpr int kLeastBoxRows = 8;
// Keys of each box, for pages of so many keys and tiles of `block_kv`; 0: rows are gathered.
int box_rows_of(int page, int block_kv);

// Tells the kernel of a step where the rows of 16-bit elements are that its warps gather, for tiles
// of `block_kv` keys. False, and nothing is told, where pages and rows of keys and of values are
// not equally many places long, as in [pages, heads, rows, columns] beside [pages, rows, heads,
// columns], or where 32 bits do not count the cache's pieces of 16 bytes. Requires: strides are
// multiples of 8 elements.
bool gather_rows(Step& step, int block_kv);

}  // namespace kiln
