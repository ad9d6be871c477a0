// mbarrier objects: phases of arrivals and of asynchronous bytes, in 64 bits of shared memory.
//
// The true state is kept beside the cluster's memory; the 64 bits hold an image of it, so that an
// object that was never initialised, has been invalidated or was written over is told apart.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {

struct Mbarrier {
  std::uint64_t phase = 0;
  std::uint32_t expected = 0;  // arrivals of the next phases
  std::uint32_t pending = 0;   // arrivals that the current phase still awaits
  std::int32_t tx = 0;         // bytes: expected minus completed
  // Who has initialised it and not executed a fence for asynchronous units since; null = fenced.
  const Warp* unfenced = nullptr;
  int lane = -1;
};

// PTX ISA, "Contents of the mbarrier object": the ranges of its counts.
inline constexpr std::uint32_t kMaxArrivals = (1u << 20) - 1;
inline constexpr std::int32_t kMaxTx = (1 << 20) - 1;

// Of one cluster, by shared address.
struct MbarrierTable {
  std::unordered_map<std::uint32_t, Mbarrier> objects;
  // Changes of any object: tells waiters that time out in vain from those that get on.
  std::uint64_t changes = 0;
};

void mbarrier_init(Warp& warp, std::uint32_t address, std::uint32_t count, int lane);
void mbarrier_invalidate(Warp& warp, std::uint32_t address, int lane);
// Raises a fault unless there is a live object at the address, which the lane may use.
const Mbarrier& mbarrier_check(Warp& warp, std::uint32_t address, int lane);

struct MbarrierArrival {
  std::uint32_t count = 1;
  std::uint32_t expect_tx = 0;
  bool drop = false;
  bool no_complete = false;
  bool release = true;
};
// By a lane. Returns the token that test_wait takes: the phase, and the arrivals that were pending.
std::uint64_t mbarrier_arrive(Warp& warp, std::uint32_t address, const MbarrierArrival& arrival,
                              int lane);
void mbarrier_expect_tx(Warp& warp, std::uint32_t address, std::uint32_t bytes, int lane);

inline std::uint64_t mbarrier_token(const Mbarrier& object) {
  return object.phase << 20 | object.pending;
}
inline std::uint64_t token_phase(std::uint64_t token) { return token >> 20; }
inline std::uint32_t token_pending(std::uint64_t token) {
  return static_cast<std::uint32_t>(token) & kMaxArrivals;
}

// The same for an object that an asynchronous unit, set off by the lane, will complete.
void mbarrier_check_async(Warp& warp, std::uint32_t address, int lane);

// By asynchronous units, which know no warp.
void mbarrier_add_pending(Cluster& cluster, std::uint32_t address);
// What `operation` has done is known to whoever waits for the current phase.
void mbarrier_publish(Cluster& cluster, std::uint32_t address, const Shadow::Operation& operation);

void decode_mbarrier(Decoder& decoder, const Instruction& instruction, Op& op);

}  // namespace kiln::runtime::emulator
