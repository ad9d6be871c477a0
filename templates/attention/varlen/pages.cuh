// Where a key lies in the pages of its sequence.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/attention/varlen/divisor.cuh"
#include "/kiln/base/types.cuh"

namespace kiln {

// The column of a key's page in the table, and its place there.
struct PagePlace {
  u32 column;
  int row;
};
__device__ __forceinline__ PagePlace page_place(const AttentionVarlenParams& p, int key) {
  const int page = quotient(key, p.page);
  return {static_cast<u32>(page), key - page * p.page.by};
}

}  // namespace kiln
