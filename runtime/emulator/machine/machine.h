// The modelled machine at run time: warps of 32 lanes in blocks in clusters.
//
// One host thread runs one cluster at a time, so nothing here is locked. Lanes of a warp that
// diverge become groups, each with its own pc, scheduled independently (warp.cpp); groups that meet
// at a pc merge again. An instruction that needs lanes of other groups returns Flow::blocked and is
// tried again.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/emulator/decode/program.h"
#include "runtime/emulator/machine/options.h"

namespace kiln::runtime::emulator {

class AddressMap;  // memory.h
class Overlap;     // overlap.h
class Shadow;      // shadow.h
class Block;
class Cluster;
struct AsyncState;  // async.h: a warp's copies and matrix products in flight
class AsyncQueue;   // async.h: a cluster's bulk copies in flight
struct SyncClock;   // shadow.h

// What a blocked group waits for; told when nobody can go on.
struct Wait {
  enum class Kind : std::uint8_t { none, lanes, barrier, mbarrier, cluster_barrier, registers };
  Kind kind = Kind::none;
  std::uint32_t id = 0;  // lanes; barrier number; shared address of an mbarrier; registers wanted
  std::uint32_t parity = 0;  // of an mbarrier
};

struct Group {
  std::uint32_t pc = 0;
  Mask mask = 0;
  bool blocked = false;
  std::uint64_t token = 0;     // a handler's own between tries of one op: the phase it arrived in
  std::uint64_t last_run = 0;  // the warp's time
  Wait wait{};
};

class Warp {
 public:
  Warp(Block& block, int index, Mask lanes);
  ~Warp();
  Warp(Warp&&) noexcept;

  // Rows. A row of 32-bit lanes; of 64-bit lanes. Sources may be constants, destinations not.
  const std::uint32_t* u32(Ref ref) const {
    return ref & kConstantRow ? constants_[ref & ~kConstantRow].data() : slots_ + ref * kLanes;
  }
  const std::uint64_t* u64(Ref ref) const {
    return reinterpret_cast<const std::uint64_t*>(u32(ref));
  }
  std::uint32_t* u32_out(Ref ref) { return slots_ + ref * kLanes; }
  std::uint64_t* u64_out(Ref ref) { return reinterpret_cast<std::uint64_t*>(u32_out(ref)); }
  Mask predicate(Ref index) const { return predicates_[index]; }
  void set_predicate(Ref index, Mask value, Mask lanes) {
    predicates_[index] = (predicates_[index] & ~lanes) | (value & lanes);
  }
  std::span<const Ref> list(const Op& op) const;

  Mask carry = 0;  // CC.CF of each lane: add.cc and its like

  // Control. `mask` jumps, the rest of the running group falls through; returns Flow::jump.
  Flow jump(Mask mask, std::uint32_t target);
  // Whether the running group holds all lanes of `members` that have not exited. When not, the
  // handler returns Flow::blocked, and the group waits for the others.
  bool gathered(Mask members);
  // For a handler that returns Flow::blocked.
  Flow block_on(Wait wait);

  Group& group() { return groups_[running_]; }
  const Group& group() const { return groups_[running_]; }
  std::span<const Group> groups() const { return groups_; }
  Mask live() const { return live_; }  // lanes that have not exited
  bool done() const { return live_ == 0; }
  int index() const { return index_; }                           // in its block
  int thread(int lane) const { return index_ * kLanes + lane; }  // linear, in its block
  Block& block() const { return *block_; }
  AsyncState& async() { return *async_; }
  // A number that grows with every op of this warp: the warp's own time.
  std::uint64_t steps() const { return steps_; }
  int warpgroup() const { return index_ / 4; }

  // How a turn of run() ended.
  enum class Turn : std::uint8_t {
    spent,    // the quantum is used up
    yielded,  // something was done, and a group polls: a flag, a failed test, nanosleep
    blocked,  // something was done, then every group blocked
    stuck,    // nothing could be done
    done      // all lanes have exited
  };
  // Runs until every group is blocked, one yields, or `quantum` ops are done. Throws EmulatorError
  // with the site.
  Turn run(std::uint64_t quantum);

  std::byte* local(int lane);  // the lane's own .local memory

 private:
  Turn step(std::uint64_t quantum);
  bool polls();
  Mask traced_lanes() const;  // the lane of Options::trace_thread, or none
  void merge();
  bool pick();
  void leave(Mask lanes);

  Block* block_;
  int index_;
  Mask live_;
  std::vector<Group> groups_;
  std::size_t running_ = 0;
  std::uint64_t steps_ = 0, last_yield_ = 0;
  std::uint32_t picks_ = 0;
  std::unique_ptr<std::uint32_t[]> storage_;
  std::uint32_t* slots_ = nullptr;
  const std::array<std::uint32_t, kLanes>* constants_ = nullptr;
  std::unique_ptr<Mask[]> predicates_;
  std::unique_ptr<AsyncState> async_;
  std::vector<std::byte> local_;
};

// A named barrier (bar.sync 0..15) of a block.
struct NamedBarrier {
  std::uint32_t expected = 0;  // threads; 0 while nobody has arrived
  std::uint32_t arrived = 0;
  std::uint64_t phase = 1;  // grows when the barrier completes
  // Of bar.red: gathering, and of the last completed phase.
  bool or_bits = false, last_or = false, last_and = false;
  std::uint32_t and_count = 0, pop_count = 0, last_pop = 0;
  std::unique_ptr<SyncClock> clock;
};

// Where shared memory begins: the system keeps the first KiB of a block's share.
inline constexpr std::uint32_t kSharedBase = 1024;
// A shared address: the block's rank in its cluster in bits 24 and up, the offset below.
inline constexpr std::uint32_t kRankShift = 24;
inline constexpr std::uint32_t kSharedOffsetMask = (1u << kRankShift) - 1;
// Generic addresses of shared and local memory; global ones are the host's own addresses, which
// never have these bits. The low 32 bits of a generic shared address are the shared address.
inline constexpr std::uint64_t kSharedWindow = 0x1000'0000'0000'0000u;
inline constexpr std::uint64_t kLocalWindow = 0x2000'0000'0000'0000u;
inline constexpr std::uint64_t kParamWindow = 0x3000'0000'0000'0000u;

class Block {
 public:
  Block(Cluster& cluster, int rank, std::array<int, 3> id, std::int64_t linear_id);

  Cluster& cluster() const { return *cluster_; }
  int rank() const { return rank_; }
  std::array<int, 3> id() const { return id_; }  // %ctaid
  std::int64_t linear_id() const { return linear_id_; }
  std::span<std::byte> shared() { return shared_; }  // from offset 0, the reserved KiB included
  std::uint32_t shared_end() const { return static_cast<std::uint32_t>(shared_.size()); }
  std::vector<Warp>& warps() { return warps_; }
  NamedBarrier& barrier(std::uint32_t id) { return barriers_[id]; }
  int thread_count() const { return thread_count_; }
  bool done() const;

  std::uint32_t register_pool = 0;  // per-thread registers of warps not claimed: setmaxnreg
  std::vector<std::uint32_t> warp_registers;  // granted to each warp
  bool lets_dependents_begin = false;         // griddepcontrol.launch_dependents

 private:
  Cluster* cluster_;
  int rank_;
  std::array<int, 3> id_;
  std::int64_t linear_id_;
  int thread_count_;
  std::vector<std::byte> shared_;
  std::vector<Warp> warps_;
  std::array<NamedBarrier, 16> barriers_;
};

// Everything that all blocks of one launch share; constant while it runs, but for `failed`.
struct Launch {
  const Program* program = nullptr;
  LaunchShape shape;
  std::span<const std::byte> arguments;
  const AddressMap* memory = nullptr;
  Overlap* overlap = nullptr;  // null where neither this launch nor the next is watched
  const DeviceLimits* limits = nullptr;
  void (*poll)() = nullptr;  // set_emulator_poll
  Options options;
};

struct ClusterBarrier {
  std::uint32_t arrived = 0;  // threads
  std::uint64_t phase = 1;
  std::unique_ptr<SyncClock> clock;
};

class Cluster {
 public:
  // `index`: linear, in the grid of clusters.
  Cluster(const Launch& launch, std::int64_t index);
  ~Cluster();

  const Launch& launch() const { return *launch_; }
  const Program& program() const { return *launch_->program; }
  std::vector<Block>& blocks() { return blocks_; }
  AsyncQueue& async() { return *async_; }
  Shadow* shadow() { return shadow_.get(); }  // null when checks are off
  ClusterBarrier& barrier() { return barrier_; }
  bool late() const { return launch_->options.schedule == Schedule::late; }
  std::mt19937_64& random() { return random_; }
  bool done() const;

  // Runs about `quantum` ops of its warps, or to the end. When nobody can go on, asynchronous work
  // in flight is delivered, one piece at a time; when there is none, throws Fault::deadlock.
  // Returns done().
  bool run(std::uint64_t quantum);

 private:
  struct Pass {
    bool progressed = false, polled = false, blocked = false;
  };
  Pass run_warps();
  bool deliver();
  void finish();  // faults of a block that ends with work in flight
  [[noreturn]] void report_deadlock();

  const Launch* launch_;
  std::int64_t index_;
  std::mt19937_64 random_;
  std::unique_ptr<AsyncQueue> async_;
  std::unique_ptr<Shadow> shadow_;
  ClusterBarrier barrier_;
  std::vector<Block> blocks_;
  std::vector<Warp*> turns_;  // in the order of a pass
  int passes_without_delivery_ = 0;
  bool finished_ = false;
};

// Runs the whole grid over the host's cores; returns when every block has ended. Throws the first
// fault, with its site.
void run_grid(const Launch& launch);

// The site of the op that `warp`'s running group is at.
struct Site;
Site site_of(const Warp& warp, int lane);
// The instruction at an op's index; null for the exit behind the last.
const Instruction* instruction_at(const Warp& warp, std::uint32_t pc);
std::string describe(const Warp& warp, const Wait& wait);  // "waits for …"
// Prints the op that `warp` has just executed at `pc`, as one lane saw it (Options::trace_thread).
void trace(const Warp& warp, std::uint32_t pc, int lane);

template <class F>
void for_each_lane(Mask mask, F f) {
  for (Mask rest = mask; rest != 0; rest &= rest - 1) f(std::countr_zero(rest));
}

}  // namespace kiln::runtime::emulator
