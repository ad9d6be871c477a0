// Quotients by numbers that the host knows.
#pragma once
#include "/kiln/attention/params.h"
#include "/kiln/base/types.cuh"

namespace kiln {

// x / divisor.by for 0 <= x < 2^31.
__device__ __forceinline__ int quotient(int x, const AttentionDivisor& divisor) {
  return static_cast<int>(static_cast<u64>(static_cast<u32>(x)) * divisor.factor >>
                          (31 + divisor.shift));
}

}  // namespace kiln
