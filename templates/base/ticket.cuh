// Finds the last of several CTAs, or warps, to arrive; it reads what the others wrote to global
// memory.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// The threads that arrive together.
struct CtaThreads {
  __device__ __forceinline__ static unsigned index() { return threadIdx.x; }
  __device__ __forceinline__ static unsigned count() { return blockDim.x; }
  __device__ __forceinline__ static void sync() { __syncthreads(); }
  __device__ __forceinline__ static int all(int value) { return __syncthreads_and(value); }
};
struct WarpThreads {
  __device__ __forceinline__ static unsigned index() { return threadIdx.x % 32; }
  __device__ __forceinline__ static unsigned count() { return 32; }
  __device__ __forceinline__ static void sync() { __syncwarp(); }
  __device__ __forceinline__ static int all(int value) { return __all_sync(~0u, value); }
};

// Returns true in exactly one of the `count` CTAs that call this with the same flags, one flag per
// CTA: in the one that finds all flags raised, which may then read what the others wrote to global
// memory before the call. All `Threads` call it, with the index of their CTA. Flags need not be
// zeroed: a flag is raised if it holds the launch's nonce, which is never 0. They are left lowered,
// so that a replayed graph may reuse its nonce. Warps take the place of CTAs with WarpThreads.
//
// A programmatic launch touches flags and what they guard behind wait_for_launches() alone
// (launches.cuh). An earlier launch that still runs may have the same workspace, and nonces do not
// keep the two apart: whichever raises a flag last takes it from the other, whose tile is then
// never finished, and whoever finishes lowers the flags of both. In a replayed graph even the
// nonces of old launches come again.
//
// A counter with atomicAdd would need zeroed memory, hence another launch; with compare-and-swap
// the CTAs take turns, and sixteen that arrive together wait for 6 us.
template <class Threads>
__device__ __forceinline__ bool arrives_last(u64* flags, u64 nonce, int index, int count) {
  volatile u64* const raised = flags;
  __threadfence();
  Threads::sync();
  if (Threads::index() == 0) {
    raised[index] = nonce;
    __threadfence();  // sequentially consistent: of any two CTAs, one sees the other's flag
  }
  Threads::sync();
  bool all = true;
  for (int i = Threads::index(); i < count; i += Threads::count()) all = all && raised[i] == nonce;
  if (!Threads::all(all)) return false;
  bool elected = true;  // among the CTAs that saw all flags
  if (Threads::index() == 0) elected = atomicCAS(flags, nonce, u64{0}) == nonce;
  if (!Threads::all(elected)) return false;
  // The reads that follow need the fence, and it would wait for the writes if they came before it.
  __threadfence();
  for (int i = Threads::index() + 1; i < count; i += Threads::count()) raised[i] = 0;
  return true;
}

}  // namespace kiln
