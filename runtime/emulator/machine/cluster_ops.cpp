// PTX ISA: mapa, getctarank, barrier.cluster, griddepcontrol, createpolicy.
#include "runtime/emulator/machine/cluster_ops.h"

#include <string>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/async/hooks.h"
#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/memory/memory.h"
#include "runtime/emulator/memory/overlap.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {
namespace {

enum Flags : std::uint8_t { kWide = 1, kWideSource = 2, kGeneric = 4, kRelaxed = 8, kAligned = 16 };

std::uint64_t source_address(const Warp& warp, const Op& op, int lane) {
  return op.flags & kWideSource ? warp.u64(op.a)[lane] : warp.u32(op.a)[lane];
}

// The shared address that a mapa or getctarank operand holds.
std::uint32_t shared_of(const Warp& warp, const Op& op, int lane) {
  std::uint64_t address = source_address(warp, op, lane);
  if (op.flags & kGeneric) {
    if (resolve_generic(address) != Space::shared) {
      raise(Fault::out_of_bounds, hex(address) + " is no generic address of shared memory", lane);
    }
  }
  return static_cast<std::uint32_t>(address);
}

Flow run_mapa(Warp& warp, const Op& op, Mask mask) {
  const std::size_t count = warp.block().cluster().blocks().size();
  for_each_lane(mask, [&](int lane) {
    const std::uint32_t rank = warp.u32(op.b)[lane];
    if (rank >= count) {
      raise(Fault::out_of_bounds,
            "mapa to block " + std::to_string(rank) + " of a cluster of " + std::to_string(count),
            lane);
    }
    const std::uint64_t mapped =
        (rank << kRankShift) | (shared_of(warp, op, lane) & kSharedOffsetMask);
    if (op.d == kNoRef) return;
    if (op.flags & kWide) {
      warp.u64_out(op.d)[lane] = op.flags & kGeneric ? mapped | kSharedWindow : mapped;
    } else {
      warp.u32_out(op.d)[lane] = static_cast<std::uint32_t>(mapped);
    }
  });
  return Flow::next;
}

Flow run_getctarank(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  for_each_lane(
      mask, [&](int lane) { warp.u32_out(op.d)[lane] = shared_of(warp, op, lane) >> kRankShift; });
  return Flow::next;
}

// Takes the space and the type; gives op.a, the address operand's row.
void decode_address_value(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  if (!modifiers.take("shared::cluster")) op.flags |= kGeneric;
  const Type type = modifiers.take_type();
  if (type != Type::u32 && type != Type::u64) decoder.unknown();
  modifiers.finish();
  if (type == Type::u64) op.flags |= kWide;
  const Operand& operand = instruction.operands[1];
  // A variable's name stands for its address in a row of 64 bits; it is no generic one.
  const bool symbol = operand.is(Operand::Kind::symbol);
  if (symbol && (op.flags & kGeneric)) decoder.unknown();
  const bool wide = symbol || type == Type::u64;
  if (wide) op.flags |= kWideSource;
  op.a = decoder.source(operand, wide ? Type::u64 : Type::u32);
}

bool all_arrived(Cluster& cluster) {
  for (Block& block : cluster.blocks()) {
    for (Warp& warp : block.warps()) {
      if ((warp.live() & ~warp.async().cluster_arrived) != 0) return false;
    }
  }
  return true;
}

// Threads that have exited count as arrived, hence waiters look again.
void complete_if_all(Cluster& cluster) {
  ClusterBarrier& barrier = cluster.barrier();
  if (barrier.arrived == 0 || !all_arrived(cluster)) return;
  for (Block& block : cluster.blocks()) {
    for (Warp& warp : block.warps()) warp.async().cluster_arrived = 0;
  }
  barrier.arrived = 0;
  ++barrier.phase;
}

Flow run_cluster_arrive(Warp& warp, const Op& op, Mask mask) {
  if ((op.flags & kAligned) && !warp.gathered(kAllLanes)) return Flow::blocked;
  Cluster& cluster = warp.block().cluster();
  AsyncState& state = warp.async();
  for_each_lane(mask, [&](int lane) {
    std::uint64_t& phase = state.cluster_phase[static_cast<std::size_t>(lane)];
    if (phase != 0) {
      raise(Fault::barrier_misuse,
            "barrier.cluster.arrive again before barrier.cluster.wait for the last one", lane);
    }
    phase = cluster.barrier().phase;
  });
  state.cluster_arrived |= mask;
  cluster.barrier().arrived += static_cast<std::uint32_t>(std::popcount(mask));
  if (Shadow* shadow = cluster.shadow(); shadow != nullptr && !(op.flags & kRelaxed)) {
    shadow->release(warp, *cluster.barrier().clock);
  }
  complete_if_all(cluster);
  return Flow::next;
}

Flow run_cluster_wait(Warp& warp, const Op& op, Mask mask) {
  if ((op.flags & kAligned) && !warp.gathered(kAllLanes)) return Flow::blocked;
  Cluster& cluster = warp.block().cluster();
  AsyncState& state = warp.async();
  complete_if_all(cluster);
  bool complete = true;
  for_each_lane(mask, [&](int lane) {
    const std::uint64_t phase = state.cluster_phase[static_cast<std::size_t>(lane)];
    if (phase == 0) {
      raise(Fault::barrier_misuse, "barrier.cluster.wait without barrier.cluster.arrive", lane);
    }
    complete = complete && phase != cluster.barrier().phase;
  });
  if (!complete) return warp.block_on({.kind = Wait::Kind::cluster_barrier});
  for_each_lane(mask, [&](int lane) { state.cluster_phase[static_cast<std::size_t>(lane)] = 0; });
  if (Shadow* shadow = cluster.shadow()) shadow->acquire(warp, *cluster.barrier().clock);
  return Flow::next;
}

Flow run_launch_wait(Warp& warp, const Op&, Mask mask) {
  if (Overlap* overlap = warp.block().cluster().launch().overlap) overlap->wait(warp, mask);
  return Flow::next;
}
Flow run_launch_dependents(Warp& warp, const Op&, Mask) {
  if (Overlap* overlap = warp.block().cluster().launch().overlap) overlap->signal(warp);
  return Flow::next;
}

// Policies are only ever handed to instructions that ignore them.
Flow run_createpolicy(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  for_each_lane(mask, [&](int lane) { warp.u64_out(op.d)[lane] = 1; });
  return Flow::next;
}

}  // namespace

void decode_mapa(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 3, 3);
  decode_address_value(decoder, instruction, op);
  op.d = decoder.destination(instruction.operands[0], op.flags & kWide ? Type::u64 : Type::u32);
  op.b = decoder.source(instruction.operands[2], Type::u32);
  op.run = run_mapa;
}

void decode_getctarank(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 2, 2);
  decode_address_value(decoder, instruction, op);
  op.d = decoder.destination(instruction.operands[0], Type::u32);
  op.run = run_getctarank;
}

void decode_cluster_barrier(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  if (!modifiers.take("cluster")) decoder.unknown();
  const bool arrives = modifiers.take("arrive");
  if (!arrives && !modifiers.take("wait")) decoder.unknown();
  if (arrives && modifiers.take("relaxed")) op.flags |= kRelaxed;
  modifiers.take(arrives ? "release" : "acquire");
  if (modifiers.take("aligned")) op.flags |= kAligned;
  modifiers.finish();
  decoder.expect_operands(instruction, 0, 0);
  op.run = arrives ? run_cluster_arrive : run_cluster_wait;
}

// Launches never overlap here: what a predecessor in the stream did is done when a grid starts.
// Where it might not be done on a GPU, Overlap is told.
void decode_griddepcontrol(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const int which = modifiers.take_one_of({"wait", "launch_dependents"});
  if (which < 0) decoder.unknown();
  modifiers.finish();
  decoder.expect_operands(instruction, 0, 0);
  op.run = which == 0 ? run_launch_wait : run_launch_dependents;
}

void decode_createpolicy(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (instruction.operands.empty()) decoder.fail("createpolicy without operands");
  op.d = decoder.destination(instruction.operands[0], Type::b64);
  op.run = run_createpolicy;
}

}  // namespace kiln::runtime::emulator
