// Which CTA of several is the last to arrive: it then reads what the others wrote to global memory.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// True in just one of the `count` CTAs that call this with the same flags, one for each CTA: the
// one that finds all of them raised, and may then read what the others wrote to global memory
// before the call. Called by all threads, with the CTA's own index. Flags need not be zeroed: one
// is raised if it holds the launch's nonce, never 0. They are left lowered, so that a replayed
// graph may use its nonce again.
//
// A count by atomicAdd would need zeroed memory, hence another launch; one by compare-and-swap
// takes turns, and sixteen CTAs that arrive together wait for 6 us.
__device__ __forceinline__ bool arrives_last(u64* flags, u64 nonce, int index, int count) {
  volatile u64* const raised = flags;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    raised[index] = nonce;
    __threadfence();  // sequentially consistent: of two CTAs, one sees the other's flag
  }
  __syncthreads();
  bool all = true;
  for (int i = threadIdx.x; i < count; i += blockDim.x) all = all && raised[i] == nonce;
  if (!__syncthreads_and(all)) return false;
  bool elected = true;  // of several that saw all
  if (threadIdx.x == 0) elected = atomicCAS(flags, nonce, u64{0}) == nonce;
  if (!__syncthreads_and(elected)) return false;
  for (int i = threadIdx.x + 1; i < count; i += blockDim.x) raised[i] = 0;
  __threadfence();
  return true;
}

}  // namespace kiln
