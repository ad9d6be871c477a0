// Programmatic dependent launch (sm_90 and later): a launch that may begin before the launches
// before it in its stream have ended.
//
// What a kernel does ahead of wait_for_launches() must not need those launches: it may set up
// shared memory, and read its parameters and memory that nobody writes. It must not write global
// memory, which they may still read, nor touch its workspace, which may be theirs, too (see
// ticket.cuh). An exception is the second of two launches of one call that share neither outputs
// nor workspace, of which the first is an ordinary one: all before that have ended, and the second
// may do all of its work ahead of the wait, see attention/varlen/flash_attention.cuh. Every role
// that accesses global memory waits on its own, and so does at least one thread of every CTA before
// that ends: who waits for this launch then waits for earlier ones, too.
//
// If the launch is an ordinary one, the wait returns at once, so the same kernel serves both.
#pragma once

namespace kiln {

// Waits until all earlier launches of the stream have ended; all that they wrote is then visible.
template <bool kOverlaps = true>
__device__ __forceinline__ void wait_for_launches() {
  if constexpr (kOverlaps) asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Called by at least one thread of a CTA, behind wait_for_launches(), or at the beginning of an
// ordinary launch, before which all have ended, so that no more than two launches overlap. The next
// launch may begin when all CTAs have called this or ended. By then all of them run, so it takes no
// multiprocessor from any of them.
template <bool kOverlaps = true>
__device__ __forceinline__ void let_dependents_begin() {
  if constexpr (kOverlaps) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace kiln
