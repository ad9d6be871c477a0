// Finds the last of several CTAs, or warps, to arrive; it reads what the others wrote to global
// memory.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// The threads that arrive together.
struct CtaThreads {
  __device__ __forceinline__ static unsigned index() { return threadIdx.x; }
  __device__ __forceinline__ static void sync() { __syncthreads(); }
  __device__ __forceinline__ static int any(int value) { return __syncthreads_or(value); }
};
struct WarpThreads {
  __device__ __forceinline__ static unsigned index() { return threadIdx.x % 32; }
  __device__ __forceinline__ static void sync() { __syncwarp(); }
  __device__ __forceinline__ static int any(int value) {
    const int is_any = __any_sync(~0u, value);
    __syncwarp();  // a vote orders no memory: all lanes read what one of them has acquired
    return is_any;
  }
};

// Returns true in exactly one of the `count` CTAs that call this with the same flags, one flag per
// CTA: in the one that finds all flags raised, which may then read what the others wrote to global
// memory before the call. All threads call it, with the index of their CTA. Flags need not be
// zeroed: a flag is raised if it holds the launch's nonce, which is never 0. They are left lowered,
// so that a replayed graph may reuse its nonce.
//
// A programmatic launch touches flags and what they guard behind wait_for_launches() alone
// (launches.cuh). An earlier launch that still runs may have the same workspace, and nonces do not
// keep the two apart: whichever raises a flag last takes it from the other, whose tile is then
// never finished, and whoever finishes lowers the flags of both. In a replayed graph even the
// nonces of old launches come again.
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
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    all = all && raised[i] == nonce;
  }
  if (!__syncthreads_and(all)) return false;
  bool elected = true;  // among the CTAs that saw all flags
  if (threadIdx.x == 0) elected = atomicCAS(flags, nonce, u64{0}) == nonce;
  if (!__syncthreads_and(elected)) return false;
  // The reads that follow need the fence, and it would wait for the writes if they came before it.
  __threadfence();
  for (int i = threadIdx.x + 1; i < count; i += blockDim.x) raised[i] = 0;
  return true;
}

// The same for CTAs, or warps, that can open a counter ahead of their arrival, one of 8 bytes for
// all `count` < 2^16 - 1 of them: the last one knows itself by one round trip to memory, which
// takes 0.65 us on an H200, instead of several, which take 1.75 us. The counter's value is the
// nonce in the upper 48 bits and, below, one more than have arrived; 0 and whatever an old launch
// has left is no value of this launch. The last to arrive leaves it at 0, so that a replayed graph
// may reuse its nonce. What is said above about programmatic launches holds here, too.
class Arrivals {
 public:
  __device__ __forceinline__ Arrivals(u64* counter, u64 nonce, int count)
      : counter_(counter), opened_(nonce << 16 | 1), count_(count) {}

  // Called by the first of the threads: look() early, but behind all copies that it is going to
  // wait for anyway, and open() with what it has seen before it arrives, when that is there.
  // Whichever CTA is the first opens the counter, and it stays open until all have arrived, hence
  // have called this.
  __device__ __forceinline__ static u64 look(const u64* counter) {
    return *static_cast<const volatile u64*>(counter);
  }
  __device__ __forceinline__ void open(u64 seen) const {
    if (seen - opened_ >= static_cast<u64>(count_)) atomicCAS(counter_, seen, opened_);
  }

  // Called by all threads, once. Returns true in the CTA, or the warp, that is the last to arrive,
  // which may then read what the others wrote to global memory before the call.
  template <class Threads = CtaThreads>
  __device__ __forceinline__ bool is_last() const {
    Threads::sync();  // the atomic operation below releases what all threads have written
    bool last = false;
    if (Threads::index() == 0) {
      u64 before;
      asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;"
                   : "=l"(before)
                   : "l"(__cvta_generic_to_global(counter_))
                   : "memory");
      last = before - opened_ == static_cast<u64>(count_ - 1);
      if (last) *static_cast<volatile u64*>(counter_) = 0;
    }
    return Threads::any(last);
  }

 private:
  u64* counter_;
  u64 opened_;
  int count_;
};

}  // namespace kiln
