// Barriers in shared memory that count arrivals and the bytes of asynchronous copies (sm_90).
//
// A phase ends when as many threads have arrived as init_barrier() was given and all bytes that
// they announced have landed; the next phase begins at once. A waiter names the parity of the
// phase: 0 for the first, 1 for the second, then 0 again. On a fresh barrier a wait for parity 1
// returns at once, as if a phase before the first had ended, so writers find a new ring empty.
#pragma once
#include "/kiln/base/copy.cuh"
#include "/kiln/sm90/old_compilers.cuh"

namespace kiln {

// Called by one thread, which then calls fence_barrier_init(); all users then meet at a barrier.
__device__ __forceinline__ void init_barrier(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the cluster and to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives once and announces `bytes` that copies will bring in this phase.
__device__ __forceinline__ void arrive_expecting(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives once, when all copies have landed that this thread has started with cp.async. They are
// ordinary writes: between a wait for the phase and reads by wgmma or the copy engine, a thread
// that has waited calls fence_async_proxy(), which is the reader or one that then arrives at a
// barrier of the reader.
__device__ __forceinline__ void arrive_after_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the same barrier of another CTA of the cluster. The scope is the default, the CTA: a
// release to the cluster waits for all memory accesses of the thread, which costs a GEMM a third of
// its speed or more. These barriers order writes of the copy engine, or of st.async, behind reads
// by wgmma, or by loads whose values have been used: all of these are over by then.
__device__ __forceinline__ void arrive_at(u32 barrier, u32 cta) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}" ::"r"(barrier),
      "r"(cta)
      : "memory");
}

// Returns at once whether the phase has ended.
__device__ __forceinline__ bool test_wait(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Suspends the thread for a while; returns false if the phase has still not ended.
__device__ __forceinline__ bool try_wait(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
__device__ __forceinline__ void wait(u32 barrier, u32 parity) {
  while (!try_wait(barrier, parity)) {
  }
}
// The same for a whole warp, in loops that ptxas has to see as uniform.
__device__ __forceinline__ void wait_as_warp(u32 barrier, u32 parity) {
  if constexpr (kLanesMustLeaveTogether) {
    while (!__all_sync(~0u, try_wait(barrier, parity))) {
    }
  } else {
    wait(barrier, parity);
  }
}
}  // namespace kiln
