// Bounds of the elements of a tensor that a mask reads at positions: the least and the
// greatest of each 64, which a launch ahead of attention has written to the call's workspace.
#pragma once
#include "/kiln/attention/interval.cuh"
#include "/kiln/base/types.cuh"
#include "/kiln/bound_elements/params.h"

namespace kiln {

struct ElementBounds {
  Slot<const int2*> data;  // [entries, blocks]; null: nothing is known
  Slot<int> blocks;        // of an entry of the batch
  Slot<int> entry_blocks;  // between two entries: 0 if they share the elements

  // The elements at these positions. A position outside of the tensor stands for the nearest one
  // inside, as in VariantTable.
  __device__ __forceinline__ Interval at(int b, Interval positions) const {
    if (data.value == nullptr) return everything();
    const int end = blocks.value - 1;
    const int first = max(min(positions.low / kBoundedPositions, end), 0);
    const int last = max(min(positions.high / kBoundedPositions, end), 0);
    const int2* const entry = data.value + i64{b} * entry_blocks.value;
    Interval all = {kLargestInt, kLeastInt};
    // Four loads are under way at a time.
#pragma unroll 1
    for (int block = first; block <= last; block += 4) {
      int2 bounds[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) bounds[i] = __ldg(entry + min(block + i, last));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        all = {min(all.low, bounds[i].x), max(all.high, bounds[i].y)};
      }
    }
    return all;
  }
};

}  // namespace kiln
