// Finds the CTA that arrives last where several work on one result, so that it can combine their
// parts in a fixed order. The counters need not be zero when a launch begins.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// True in the whole CTA that is the last of `count` to arrive at `ticket`; then everything that the
// others wrote to global memory before they arrived may be read. Every thread of a CTA must call.
//
// A ticket is the nonce of the launch in its upper 56 bits and the arrivals in its lower 8. Whatever
// else it holds, leftovers of a launch that was killed included, counts as no arrival yet. The last
// CTA leaves 0. Requires: the low 8 bits of `nonce` are 0, the rest is not; 1 <= count <= 255.
__device__ __forceinline__ bool arrives_last(u64* ticket, u64 nonce, int count) {
  __syncthreads();  // all threads have written before one of them announces it
  int is_last = 0;
  if (threadIdx.x == 0) {
    __threadfence();
    u64 seen = *static_cast<volatile u64*>(ticket), expected;
    do {
      expected = seen;
      const u64 arrived = (expected ^ nonce) < 256 ? expected + 1 : nonce + 1;
      is_last = arrived == nonce + count;
      seen = atomicCAS(ticket, expected, is_last ? 0 : arrived);
    } while (seen != expected);
    __threadfence();
  }
  return __syncthreads_or(is_last);
}

}  // namespace kiln
