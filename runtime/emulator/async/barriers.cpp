// Named barriers. PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier".
#include "runtime/emulator/async/barriers.h"

#include <bit>
#include <string>

#include "runtime/emulator/async/hooks.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

enum Flags : std::uint8_t { kAligned = 1, kNegated = 2, kOr = 4, kAnd = 8, kPopc = 16 };

std::uint32_t uniform(const Warp& warp, Ref ref, Mask mask, const char* what) {
  const std::uint32_t* row = warp.u32(ref);
  const std::uint32_t value = row[std::countr_zero(mask)];
  for_each_lane(mask, [&](int lane) {
    if (row[lane] != value) {
      raise(Fault::barrier_misuse, std::string("lanes of one warp name different ") + what, lane);
    }
  });
  return value;
}

// Threads of warps that can still arrive: those that have exited do not count.
std::uint32_t live_threads(Block& block) {
  std::uint32_t count = 0;
  for (const Warp& warp : block.warps()) {
    count += static_cast<std::uint32_t>(std::popcount(warp.live()));
  }
  return count;
}

struct Arrival {
  std::uint32_t id, threads;
  bool counted;  // the instruction gives the number of threads
};

Arrival read_arrival(const Warp& warp, const Op& op, Mask mask) {
  Arrival arrival{uniform(warp, op.a, mask, "barriers"), 0, op.b != kNoRef};
  if (arrival.id >= 16) {
    raise(Fault::barrier_misuse, "barrier " + std::to_string(arrival.id) + "; there are 0 to 15");
  }
  if (arrival.counted) {
    arrival.threads = uniform(warp, op.b, mask, "thread counts");
    if (arrival.threads == 0 || arrival.threads % kLanes != 0) {
      raise(Fault::barrier_misuse, "a barrier of " + std::to_string(arrival.threads) +
                                       " threads; the count must be a multiple of 32");
    }
  }
  return arrival;
}

void complete(NamedBarrier& barrier) {
  barrier.last_or = barrier.or_bits;
  barrier.last_and = barrier.and_count == barrier.arrived;
  barrier.last_pop = barrier.pop_count;
  barrier.or_bits = false;
  barrier.and_count = barrier.pop_count = 0;
  barrier.arrived = barrier.expected = 0;
  ++barrier.phase;
}

// Counts the group in. A thread count is in whole warps: lanes that never existed or have exited
// count for a warp whose live lanes have all arrived.
void arrive(Warp& warp, const Op& op, Mask mask, const Arrival& arrival) {
  Block& block = warp.block();
  NamedBarrier& barrier = block.barrier(arrival.id);
  if (arrival.counted) {
    if (barrier.expected != 0 && barrier.expected != arrival.threads) {
      raise(Fault::barrier_misuse, "barrier " + std::to_string(arrival.id) + " is used with " +
                                       std::to_string(arrival.threads) + " threads while " +
                                       std::to_string(barrier.expected) + " are awaited there");
    }
    barrier.expected = arrival.threads;
  }
  const bool whole = mask == warp.live();
  barrier.arrived += arrival.counted && whole ? kLanes : std::popcount(mask);
  if (op.c != kNoRef) {
    const Mask holds = op.flags & kNegated ? ~warp.predicate(op.c) : warp.predicate(op.c);
    const auto count = static_cast<std::uint32_t>(std::popcount(holds & mask));
    barrier.or_bits = barrier.or_bits || count != 0;
    barrier.pop_count += count;
    // Lanes that exist only in the count agree with everything.
    barrier.and_count +=
        count +
        (arrival.counted && whole ? static_cast<std::uint32_t>(kLanes - std::popcount(mask)) : 0);
  }
  if (Shadow* shadow = block.cluster().shadow()) shadow->release(warp, *barrier.clock);
  if (arrival.counted && barrier.arrived > barrier.expected) {
    raise(Fault::barrier_misuse, std::to_string(barrier.arrived) + " threads arrive at barrier " +
                                     std::to_string(arrival.id) + ", which awaits " +
                                     std::to_string(barrier.expected));
  }
}

void check_complete(Block& block, NamedBarrier& barrier) {
  const std::uint32_t expected = barrier.expected != 0 ? barrier.expected : live_threads(block);
  if (barrier.arrived != 0 && barrier.arrived >= expected) complete(barrier);
}

void deliver_result(Warp& warp, const Op& op, Mask mask, const NamedBarrier& barrier) {
  if (op.d == kNoRef) return;
  if (op.flags & kPopc) {
    for_each_lane(mask, [&](int lane) { warp.u32_out(op.d)[lane] = barrier.last_pop; });
  } else {
    const bool result = op.flags & kOr ? barrier.last_or : barrier.last_and;
    warp.set_predicate(op.d, result ? kAllLanes : 0, mask);
  }
}

Flow run_sync(Warp& warp, const Op& op, Mask mask) {
  if ((op.flags & kAligned) && !warp.gathered(kAllLanes)) return Flow::blocked;
  const Arrival arrival = read_arrival(warp, op, mask);
  NamedBarrier& barrier = warp.block().barrier(arrival.id);
  Group& group = warp.group();
  if (group.token == 0) {
    arrive(warp, op, mask, arrival);
    group.token = barrier.phase;
  }
  check_complete(warp.block(), barrier);
  if (barrier.phase == group.token) return warp.block_on({Wait::Kind::barrier, arrival.id, 0});
  group.token = 0;
  if (Shadow* shadow = warp.block().cluster().shadow()) shadow->acquire(warp, *barrier.clock);
  deliver_result(warp, op, mask, barrier);
  return Flow::next;
}

Flow run_arrive(Warp& warp, const Op& op, Mask mask) {
  if ((op.flags & kAligned) && !warp.gathered(kAllLanes)) return Flow::blocked;
  const Arrival arrival = read_arrival(warp, op, mask);
  arrive(warp, op, mask, arrival);
  check_complete(warp.block(), warp.block().barrier(arrival.id));
  return Flow::next;
}

Flow run_warp_sync(Warp& warp, const Op& op, Mask mask) {
  const std::uint32_t* members = warp.u32(op.a);
  Mask all = 0;
  for_each_lane(mask, [&](int lane) {
    if (!(members[lane] >> lane & 1)) {
      raise(Fault::barrier_misuse, "a lane that is not in bar.warp.sync's mask executes it", lane);
    }
    all |= members[lane];
  });
  if (!warp.gathered(all)) return Flow::blocked;
  if (Shadow* shadow = warp.block().cluster().shadow()) shadow->sync_lanes(warp);
  return Flow::next;
}

void decode_reduction(Decoder& decoder, const Instruction& instruction, Op& op) {
  // bar.red.op d, a{, b}, {!}p
  decoder.expect_operands(instruction, 3, 4);
  const Operand& last = instruction.operands.back();
  op.c = decoder.predicate(last);
  op.flags |= last.negated ? kNegated : 0;
  op.a = decoder.source(instruction.operands[1], Type::u32);
  if (instruction.operands.size() == 4) {
    op.b = decoder.source(instruction.operands[2], Type::u32);
  }
  if (instruction.has("popc")) {
    op.flags |= kPopc;
    op.d = decoder.destination(instruction.operands[0], Type::u32);
  } else {
    op.flags |= instruction.has("or") ? kOr : kAnd;
    op.d = decoder.predicate(instruction.operands[0]);
  }
  op.run = run_sync;
}

}  // namespace

void decode_barrier(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (instruction.has("cluster")) return decode_cluster_barrier(decoder, instruction, op);
  if (instruction.has("warp")) {
    decoder.expect_operands(instruction, 1, 1);
    op.a = decoder.source(instruction.operands[0], Type::b32);
    op.run = run_warp_sync;
    return;
  }
  // bar is barrier.aligned.
  if (instruction.opcode == "bar" || instruction.has("aligned")) op.flags |= kAligned;
  if (instruction.has("red")) return decode_reduction(decoder, instruction, op);
  const bool arrives = instruction.has("arrive");
  if (!arrives && !instruction.has("sync")) decoder.unknown();
  decoder.expect_operands(instruction, arrives ? 2 : 1, 2);
  op.a = decoder.source(instruction.operands[0], Type::u32);
  if (instruction.operands.size() == 2) {
    op.b = decoder.source(instruction.operands[1], Type::u32);
  }
  op.run = arrives ? run_arrive : run_sync;
}

}  // namespace kiln::runtime::emulator
