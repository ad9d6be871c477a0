// These barriers are for some of a CTA's threads.
#pragma once
#include "/kiln/base/types.cuh"

namespace kiln {

// Waits at barrier `id`, 1 to 15, for kThreads threads; barrier 0 is __syncthreads().
template <int kThreads>
__device__ __forceinline__ void sync_threads(u32 id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}
// Arrives at barrier `id` without waiting.
template <int kThreads>
__device__ __forceinline__ void arrive_threads(u32 id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

}  // namespace kiln
