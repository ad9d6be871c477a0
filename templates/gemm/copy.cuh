// The asynchronous copy of one word, for elements whose neighbours may lie anywhere.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Copies `valid_bytes` (0..4) from global memory and fills the rest of the 4 bytes with zeros. With
// 0 valid bytes nothing is read, so `source` may be any address.
__device__ __forceinline__ void copy_async_4(u32 destination, const void* source, int valid_bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(destination), "l"(source),
               "r"(valid_bytes)
               : "memory");
}

}  // namespace kiln
