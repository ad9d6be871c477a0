// Where a key lies in the pages of its sequence.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/base/math.cuh"

namespace kiln {

// The column of a key's page in the table, and its place there. Behind key `last` the table may
// hold anything, or end.
struct PagePlace {
  u32 column;
  int row;
};
__device__ __forceinline__ PagePlace page_place(const AttentionVarlenParams& p, int key, int last) {
  const u32 at = min(key, last);
  const u32 page = static_cast<u64>(at) * p.page_factor >> (31 + p.page_shift);
  return {page, static_cast<int>(at - page * p.page_size)};
}

}  // namespace kiln
