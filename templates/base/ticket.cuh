// Finds the last of several CTAs to arrive; it reads what the others wrote to global memory.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Returns true in exactly one of the `count` CTAs that call this with the same flags, one flag per
// CTA: in the one that finds all flags raised, which may then read what the others wrote to global
// memory before the call. All threads call it, with the index of their CTA. Flags need not be
// zeroed: a flag is raised if it holds the launch's nonce, which is never 0. They are left lowered,
// so that a replayed graph may reuse its nonce.
//
// A counter with atomicAdd would need zeroed memory, hence another launch; with compare-and-swap
// the CTAs take turns, and sixteen that arrive together wait for 6 us.
__device__ __forceinline__ bool arrives_last(u64* flags, u64 nonce, int index, int count) {
  volatile u64* const raised = flags;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    raised[index] = nonce;
    __threadfence();  // sequentially consistent: of any two CTAs, one sees the other's flag
  }
  __syncthreads();
  bool all = true;
  for (int i = threadIdx.x; i < count; i += blockDim.x) all = all && raised[i] == nonce;
  if (!__syncthreads_and(all)) return false;
  bool elected = true;  // among the CTAs that saw all flags
  if (threadIdx.x == 0) elected = atomicCAS(flags, nonce, u64{0}) == nonce;
  if (!__syncthreads_and(elected)) return false;
  for (int i = threadIdx.x + 1; i < count; i += blockDim.x) raised[i] = 0;
  __threadfence();
  return true;
}

}  // namespace kiln
