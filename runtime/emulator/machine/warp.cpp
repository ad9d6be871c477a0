// Divergence: groups of lanes, their scheduling and merging; the loop that runs ops.
#include <algorithm>
#include <cstring>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {
namespace {

// Ops that a group of a diverged warp runs before another may: short, for lanes that wait for each
// other through memory.
constexpr std::uint64_t kGroupSlice = 256;
// Ops between two loads of a flag that make them a loop that waits for it.
constexpr std::uint64_t kPollDistance = 64;

}  // namespace

Warp::Warp(Block& block, int index, Mask lanes) : block_(&block), index_(index), live_(lanes) {
  const Program& program = block.cluster().program();
  groups_.push_back({.pc = 0, .mask = lanes});
  // 64-byte aligned rows, for the vector loads that compilers make of lane loops.
  constexpr std::size_t kAlign = 64;
  const std::size_t words = std::size_t{program.slots} * kLanes;
  storage_ = std::make_unique<std::uint32_t[]>(words + kAlign / 4);
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
  slots_ = storage_.get() + (kAlign - address % kAlign) % kAlign / 4;
  constants_ = program.constants.data();
  predicates_ = std::make_unique<Mask[]>(program.predicates + 1);
  async_ = std::make_unique<AsyncState>();
  const std::uint64_t rank = static_cast<std::uint64_t>(block.rank()) << kRankShift;
  for (const SharedAddressRow& shared : program.shared_addresses) {
    std::fill_n(u64_out(shared.row), kLanes, rank | shared.offset);
  }
}

Warp::Warp(Warp&&) noexcept = default;
Warp::~Warp() = default;

std::span<const Ref> Warp::list(const Op& op) const {
  return std::span(block_->cluster().program().lists).subspan(op.list, op.list_size);
}

std::byte* Warp::local(int lane) {
  const std::size_t bytes = block_->cluster().program().local_bytes;
  if (local_.empty()) local_.resize(bytes * kLanes);
  return local_.data() + bytes * static_cast<std::size_t>(lane);
}

Flow Warp::jump(Mask mask, std::uint32_t target) {
  Group& current = group();
  if (mask == current.mask) {
    current.pc = target;
    return Flow::jump;
  }
  current.mask &= ~mask;
  ++current.pc;
  groups_.push_back({.pc = target, .mask = mask, .last_run = steps_});
  return Flow::jump;
}

bool Warp::gathered(Mask members) {
  if ((members & live_ & ~group().mask) == 0) return true;
  group().wait = {Wait::Kind::lanes, members, 0};
  return false;
}

Flow Warp::block_on(Wait wait) {
  group().wait = wait;
  return Flow::blocked;
}

// Lanes that have met at one pc go on together. A group that has arrived at a barrier (token) has
// done half of its op, so nobody may join it.
void Warp::merge() {
  for (std::size_t i = groups_.size(); i-- > 0;) {
    if (i == running_ || groups_[i].pc != group().pc) continue;
    if (groups_[i].token != 0 || group().token != 0) continue;
    group().mask |= groups_[i].mask;
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < running_) --running_;
  }
}

// The group that is furthest behind runs first, since others are likely to wait for it where paths
// join; now and then the one that has waited longest, so that a spinning group starves nobody.
bool Warp::pick() {
  const bool by_age = ++picks_ % 8 == 0;
  std::size_t best = groups_.size();
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].blocked) continue;
    if (best == groups_.size() || (by_age ? groups_[i].last_run < groups_[best].last_run
                                          : groups_[i].pc < groups_[best].pc)) {
      best = i;
    }
  }
  if (best == groups_.size()) return false;
  running_ = best;
  group().last_run = steps_;
  return true;
}

void Warp::leave(Mask lanes) {
  live_ &= ~lanes;
  group().mask &= ~lanes;
  if (group().mask == 0) {
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(running_));
    running_ = 0;
  } else {
    ++group().pc;
  }
  // Those who waited for the lanes that left may go on.
  for (Group& other : groups_) other.blocked = false;
}

Mask Warp::traced_lanes() const {
  const Options& options = block_->cluster().launch().options;
  const bool is_traced = options.trace_thread >= 0 && options.trace_thread / kLanes == index_ &&
                         options.trace_block == block_->linear_id();
  return is_traced ? Mask{1} << options.trace_thread % kLanes : 0;
}

Warp::Turn Warp::run(std::uint64_t quantum) {
  if (done()) return Turn::done;
  for (Group& each : groups_) each.blocked = false;
  try {
    return step(quantum);
  } catch (const RaisedFault& fault) {
    // The last line of a trace is the instruction at fault.
    if (const Mask traced = traced_lanes() & group().mask) {
      trace(*this, group().pc, std::countr_zero(traced));
    }
    throw EmulatorError(fault.fault, fault.message, site_of(*this, fault.lane));
  }
}

// Of an op that yields: whether it is one of a tight loop of such, in which nothing else is done.
bool Warp::polls() {
  const bool is_near = steps_ - last_yield_ < kPollDistance;
  last_yield_ = steps_;
  return is_near;
}

Warp::Turn Warp::step(std::uint64_t quantum) {
  const Program& program = block_->cluster().program();
  const Op* const ops = program.ops.data();
  const Mask traced = traced_lanes();
  const std::uint64_t begin = steps_;
  while (pick()) {
    std::uint64_t slice = groups_.size() > 1 ? std::min(quantum, kGroupSlice) : quantum;
    for (bool goes_on = true; goes_on && slice > 0; --slice) {
      if (groups_.size() > 1) merge();
      const std::uint32_t pc = group().pc;
      const Op& op = ops[pc];
      Mask mask = group().mask;
      if (op.guard >= 0) {
        const Mask holds = predicates_[op.guard];
        mask &= op.guard_negated ? ~holds : holds;
        if (mask == 0) {
          ++group().pc;
          ++steps_;
          continue;
        }
      }
      const bool taken = op.matrix && watch_matrix(*this, op, mask);
      const Flow flow = taken ? Flow::next : op.run(*this, op, mask);
      if ((traced & mask) != 0 && flow != Flow::blocked) {
        trace(*this, pc, std::countr_zero(traced));
      }
      switch (flow) {
        case Flow::next:
          ++group().pc;
          break;
        case Flow::jump:
          goes_on = groups_.size() == 1;  // after a split the scheduler chooses
          break;
        case Flow::blocked:
          group().blocked = true;
          goes_on = false;
          break;
        case Flow::yield:
          ++group().pc;
          ++steps_;
          return polls() ? Turn::yielded : Turn::spent;
        case Flow::exit:
          ++steps_;
          leave(mask);
          if (done()) return Turn::done;
          goes_on = false;
          break;
      }
      if (flow != Flow::blocked) ++steps_;
    }
    if (steps_ - begin >= quantum) return Turn::spent;
  }
  return steps_ == begin ? Turn::stuck : Turn::blocked;
}

}  // namespace kiln::runtime::emulator
