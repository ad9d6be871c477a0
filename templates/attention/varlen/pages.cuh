// Where a key lies in the pages of its sequence.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/base/types.cuh"

namespace kiln {

// The column of a key's page in the table, and its place there.
struct PagePlace {
  u32 column;
  int row;
};
__device__ __forceinline__ PagePlace page_place(const AttentionVarlenParams& p, int key) {
  const u32 page = static_cast<u64>(static_cast<u32>(key)) * p.page_factor >> (31 + p.page_shift);
  return {page, static_cast<int>(key - page * p.page_size)};
}

}  // namespace kiln
