// Deals numbers to CTAs in the order in which they ask for them.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Returns 0, 1, 2, .. to the threads of all CTAs that call it with the same counter of two words.
// `is_first`: the thread has not called it before. The words need not be zeroed: the first one
// holds the launch's nonce, which is never 0, once the second one is valid. end_draws() invalidates
// them, so that a replayed graph may reuse its nonce.
__device__ __forceinline__ u32 draw(u64* counter, u64 nonce, bool is_first) {
  if (is_first) {
    volatile u64* const owner = counter;
    const u64 busy = ~nonce;
    for (u64 seen = *owner; seen != nonce; seen = *owner) {
      if (seen == busy || atomicCAS(counter, seen, busy) != seen) continue;
      reinterpret_cast<volatile u64*>(counter)[1] = 0;
      __threadfence();
      *owner = nonce;
    }
    __threadfence();
  }
  return atomicAdd(reinterpret_cast<u32*>(counter + 1), 1u);
}

// Called by one thread when no other will draw again.
__device__ __forceinline__ void end_draws(u64* counter) {
  *reinterpret_cast<volatile u64*>(counter) = 0;
}

}  // namespace kiln
