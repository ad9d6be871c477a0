// A ring of stages in shared memory between producers, mostly one, and consumers, with a pair of
// barriers for each stage.
//
//              full[s]: one arrival of each producer, and the bytes of its copies
//   producer ---------------------------------------------------------------------> consumers
//            <---------------------------------------------------------------------
//              empty[s]: one arrival for each consumer warp, of every CTA that the copies reach
//
// Both sides step through the same stages, each with its own position: the stage and the parity of
// its current round. Consumers begin at parity 0 and the producer at parity 1, because a fresh
// barrier counts as one whose round of parity 1 has ended.
//
// A parity only tells a stage's round from the next one. Consumers that skip the rounds of others
// must take turns: they may wait again only when the others are done with those rounds.
#pragma once
#include "/kiln/sm90/mbarrier.cuh"

namespace kiln {

template <int kStages>
struct RingPosition {
  u32 stage = 0;
  u32 parity;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void advance_by(int stages) {
    const u32 end = stage + stages;
    stage = end % kStages;
    parity ^= end / kStages & 1;
  }
  __device__ __forceinline__ void retreat_by(int stages) {  // at most kStages
    const int back = static_cast<int>(stage) - stages;
    parity ^= back < 0;
    stage = back < 0 ? back + kStages : back;
  }
};

// The barriers lie at `barriers` in shared memory: full 0, 1, .., then empty 0, 1, ...
template <int kStages>
struct Ring {
  using Position = RingPosition<kStages>;
  static constexpr u32 kBytes = kStages * 16;

  u32 barriers;

  __device__ __forceinline__ u32 full(u32 stage) const { return barriers + stage * 8; }
  __device__ __forceinline__ u32 empty(u32 stage) const { return barriers + (kStages + stage) * 8; }

  // The position after `rounds` stages: for roles that keep this number alone.
  __device__ __forceinline__ static Position consumer_after(u32 rounds) {
    return {rounds % kStages, rounds / kStages & 1};
  }
  __device__ __forceinline__ static Position producer_after(u32 rounds) {
    return {rounds % kStages, (rounds / kStages & 1) ^ 1};
  }
  __device__ __forceinline__ static Position consumer() { return {0, 0}; }
  __device__ __forceinline__ static Position producer() { return {0, 1}; }

  // Called by one thread, before fence_barrier_init().
  __device__ __forceinline__ void init(u32 consumer_arrivals, u32 producer_arrivals = 1) const {
    for (u32 stage = 0; stage < kStages; ++stage) {
      init_barrier(full(stage), producer_arrivals);
      init_barrier(empty(stage), consumer_arrivals);
    }
  }
};

}  // namespace kiln
