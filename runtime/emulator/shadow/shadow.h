// Who wrote and read each byte of a cluster's shared memory, and what orders them: finds races,
// reads of never-written bytes and generic writes that an asynchronous unit reads with no proxy
// fence. Happens-before is kept with vector clocks: one entry per agent.
//
// An agent is a warp or an asynchronous operation slot. Lanes of one warp are ordered by
// bar.warp.sync and by whatever the warp acquires; of several lanes that read a byte, the last one
// is remembered.
//
// What is reported is wrong in every run that synchronises as this one did; what is not reported
// may still be wrong: clocks of barriers only grow, so an early arrival at the next phase may look
// ordered to one that leaves the last phase late, and every strong access (atomic, volatile,
// relaxed, acquire, release) of a location is taken to release and to acquire.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {

// A vector clock: what has happened, per agent. Agents beyond its end: nothing.
struct SyncClock {
  std::vector<std::uint32_t> at;
  bool join(const SyncClock& other);  // whether anything was new
  void raise_to(std::uint32_t agent, std::uint32_t time);
  std::uint32_t of(std::uint32_t agent) const { return agent < at.size() ? at[agent] : 0; }
};

using Agent = std::uint32_t;

class Shadow {
 public:
  explicit Shadow(Cluster& cluster);
  ~Shadow();

  // Generic accesses of a warp's lane; `offset` in the shared memory of block `rank`.
  void read(const Warp& warp, int rank, std::uint32_t offset, std::uint32_t bytes, int lane);
  void write(const Warp& warp, int rank, std::uint32_t offset, std::uint32_t bytes, int lane);
  void atomic(const Warp& warp, int rank, std::uint32_t offset, std::uint32_t bytes, int lane);
  // Of many lanes, all in block `rank`: each lane accesses `bytes` at its shared address. Strong
  // ones (volatile, relaxed, acquire, release; atomics) never race with each other.
  void read_lanes(const Warp& warp, int rank, const std::uint64_t* addresses, std::uint32_t bytes,
                  Mask lanes, bool strong = false);
  void write_lanes(const Warp& warp, int rank, const std::uint64_t* addresses, std::uint32_t bytes,
                   Mask lanes, bool strong = false);
  void atomic_lanes(const Warp& warp, int rank, const std::uint64_t* addresses, std::uint32_t bytes,
                    Mask lanes);

  // Synchronisation: `warp` publishes what it has done into `clock`; takes over what was published.
  void release(const Warp& warp, SyncClock& clock);
  void acquire(const Warp& warp, const SyncClock& clock);
  // bar.warp.sync: what lanes of the warp have done so far is ordered before what others of it do.
  void sync_lanes(const Warp& warp);
  // fence.proxy.async by lanes of a warp: their generic writes so far may be read by the units.
  // What an asynchronous unit writes over generically accessed bytes needs a barrier only.
  void fence_proxy(const Warp& warp, Mask lanes);

  // griddepcontrol.wait by lanes of a warp; and which lanes have executed it, or are ordered behind
  // one that has.
  void wait_for_launches(const Warp& warp, Mask lanes);
  Mask behind_launches(const Warp& warp);

  // The clock of the mbarrier at `offset` of block `rank`, for its phase `parity`.
  SyncClock& mbarrier_clock(int rank, std::uint32_t offset, std::uint32_t parity);
  void forget_mbarrier(int rank, std::uint32_t offset);

  // An asynchronous operation: begins with what its issuer knows, ends by publishing into a clock.
  // Its accesses are those of the async proxy where `async_proxy`, else (cp.async) generic, and
  // complete in the order of their begin.
  struct Operation {
    Agent agent = 0;
    std::uint32_t time = 0;
    std::uint32_t pc = 0;  // of the instruction
    std::shared_ptr<const SyncClock> known;
    bool async_proxy = true;
    const Warp* issuer = nullptr;
    int lane = -1;
  };
  Operation begin(const Warp& issuer, int lane, bool async_proxy);
  void read(const Operation& operation, int rank, std::uint32_t offset, std::uint32_t bytes);
  void write(const Operation& operation, int rank, std::uint32_t offset, std::uint32_t bytes);
  void publish(const Operation& operation, SyncClock& clock);
  // The warp has waited for the operation itself (cp.async.wait_group, wgmma.wait_group).
  void acquire(const Warp& warp, const Operation& operation);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::runtime::emulator
