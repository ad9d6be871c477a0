// The instructions of mbarrier: modifiers and operands to operations on objects.
#include <memory>

#include "runtime/emulator/async/address.h"
#include "runtime/emulator/async/async.h"
#include "runtime/emulator/async/mbarrier.h"
#include "runtime/emulator/decode/modifiers.h"

namespace kiln::runtime::emulator {
namespace {

enum Flags : std::uint8_t { kExpectTx = 1, kDrop = 2, kNoComplete = 4, kRelaxed = 8, kParity = 16 };

struct BarrierExtra : OpExtra {
  AsyncAddress address;
};

const AsyncAddress& address_of(const Warp& warp, const Op& op) {
  const Program& program = warp.block().cluster().program();
  return static_cast<const BarrierExtra&>(*program.extras[op.extra]).address;
}

Flow run_init(Warp& warp, const Op& op, Mask mask) {
  const AsyncAddress& address = address_of(warp, op);
  for_each_lane(mask, [&](int lane) {
    mbarrier_init(warp, address.shared(warp, lane), warp.u32(op.b)[lane], lane);
  });
  return Flow::next;
}

Flow run_inval(Warp& warp, const Op& op, Mask mask) {
  const AsyncAddress& address = address_of(warp, op);
  for_each_lane(mask,
                [&](int lane) { mbarrier_invalidate(warp, address.shared(warp, lane), lane); });
  return Flow::next;
}

Flow run_expect_tx(Warp& warp, const Op& op, Mask mask) {
  const AsyncAddress& address = address_of(warp, op);
  for_each_lane(mask, [&](int lane) {
    mbarrier_expect_tx(warp, address.shared(warp, lane), warp.u32(op.b)[lane], lane);
  });
  return Flow::next;
}

Flow run_complete_tx(Warp& warp, const Op& op, Mask mask) {
  const AsyncAddress& address = address_of(warp, op);
  for_each_lane(mask, [&](int lane) {
    const std::uint32_t at = address.shared(warp, lane);
    mbarrier_check(warp, at, lane);
    mbarrier_complete_tx(warp.block().cluster(), at, warp.u32(op.b)[lane]);
  });
  return Flow::next;
}

Flow run_arrive(Warp& warp, const Op& op, Mask mask) {
  const AsyncAddress& address = address_of(warp, op);
  for_each_lane(mask, [&](int lane) {
    MbarrierArrival arrival;
    const std::uint32_t operand = op.b != kNoRef ? warp.u32(op.b)[lane] : 1;
    if (op.flags & kExpectTx) {
      arrival.expect_tx = operand;
    } else {
      arrival.count = operand;
    }
    arrival.drop = (op.flags & kDrop) != 0;
    arrival.no_complete = (op.flags & kNoComplete) != 0;
    arrival.release = (op.flags & kRelaxed) == 0;
    const std::uint64_t token = mbarrier_arrive(warp, address.shared(warp, lane), arrival, lane);
    if (op.d != kNoRef) warp.u64_out(op.d)[lane] = token;
  });
  return Flow::next;
}

Flow run_pending_count(Warp& warp, const Op& op, Mask mask) {
  if (op.d == kNoRef) return Flow::next;
  for_each_lane(mask,
                [&](int lane) { warp.u32_out(op.d)[lane] = token_pending(warp.u64(op.a)[lane]); });
  return Flow::next;
}

// What one lane waits for.
struct Awaited {
  std::uint32_t address = 0;
  std::uint32_t parity = 0;
  std::uint64_t phase = 0;
  bool by_parity = true;

  // A parity two phases behind cannot be told from the current one, here as on hardware.
  bool complete(const Mbarrier& object) const {
    return by_parity ? (object.phase & 1) != parity : object.phase != phase;
  }
  bool operator==(const Awaited&) const = default;
};

Awaited awaited(const Warp& warp, const Op& op, int lane) {
  Awaited wanted;
  wanted.address = address_of(warp, op).shared(warp, lane);
  wanted.by_parity = (op.flags & kParity) != 0;
  if (wanted.by_parity) {
    wanted.parity = warp.u32(op.b)[lane];
    if (wanted.parity > 1) {
      raise(Fault::barrier_misuse,
            "the phase parity " + std::to_string(wanted.parity) + "; valid are 0 and 1", lane);
    }
  } else {
    wanted.phase = token_phase(warp.u64(op.b)[lane]);
    wanted.parity = static_cast<std::uint32_t>(wanted.phase & 1);
  }
  return wanted;
}

// The lanes whose phase is complete; the first lane that still waits tells what for.
Mask complete_lanes(Warp& warp, const Op& op, Mask mask, Awaited& missing) {
  Cluster& cluster = warp.block().cluster();
  Mask complete = 0;
  Awaited last;
  bool last_complete = false, has_last = false;
  for_each_lane(mask, [&](int lane) {
    const Awaited wanted = awaited(warp, op, lane);
    // Mostly all lanes wait for the same.
    if (!has_last || !(wanted == last)) {
      last_complete = wanted.complete(mbarrier_check(warp, wanted.address, lane));
      last = wanted;
      has_last = true;
      Shadow* shadow = cluster.shadow();
      if (last_complete && shadow != nullptr && !(op.flags & kRelaxed)) {
        shadow->acquire(warp, shadow->mbarrier_clock(rank_of(wanted.address),
                                                     offset_of(wanted.address), wanted.parity));
      }
    }
    if (last_complete) {
      complete |= Mask{1} << lane;
    } else {
      missing = wanted;
    }
  });
  return complete;
}

Flow run_test_wait(Warp& warp, const Op& op, Mask mask) {
  Awaited missing;
  const Mask complete = complete_lanes(warp, op, mask, missing);
  if (op.d != kNoRef) warp.set_predicate(op.d, complete, mask);
  return complete == mask ? Flow::next : Flow::yield;
}

// Blocks, as the hardware does for a while, unless some lane can go on. The hardware's limit of
// time comes when nothing else in the cluster goes on: then the result is false.
Flow run_try_wait(Warp& warp, const Op& op, Mask mask) {
  Awaited missing;
  const Mask complete = complete_lanes(warp, op, mask, missing);
  if (complete == 0 && !warp.block().cluster().async().times_out(warp.async(), mask)) {
    return warp.block_on({Wait::Kind::mbarrier, missing.address, missing.parity});
  }
  if (op.d != kNoRef) warp.set_predicate(op.d, complete, mask);
  return Flow::next;
}

std::string_view take_space(Modifiers& modifiers) {
  constexpr std::string_view kSpaces[] = {"shared", "shared::cta", "shared::cluster"};
  const int index = modifiers.take_one_of({kSpaces[0], kSpaces[1], kSpaces[2]});
  return index < 0 ? std::string_view() : kSpaces[index];
}

// .sem and .scope: ordering across the cluster is not weaker here than inside a block.
void take_order(Modifiers& modifiers, Op& op) {
  if (modifiers.take("relaxed")) op.flags |= kRelaxed;
  modifiers.take_one_of({"release", "acquire"});
  modifiers.take_one_of({"cta", "cluster"});
}

void decode_wait(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                 bool blocks, Op& op, BarrierExtra& extra) {
  if (modifiers.take("parity")) op.flags |= kParity;
  take_order(modifiers, op);
  const std::string_view space = take_space(modifiers);
  decoder.expect_operands(instruction, 3, blocks ? 4 : 3);
  op.d = decoder.predicate(instruction.operands[0]);
  extra.address = decode_async_address(decoder, instruction.operands[1], space);
  extra.address.own_block_only = true;  // nobody can wait for another block's
  op.b = decoder.source(instruction.operands[2], op.flags & kParity ? Type::u32 : Type::b64);
  // A suggested limit of time says nothing about the result.
  if (instruction.operands.size() == 4) decoder.source(instruction.operands[3], Type::u32);
  op.run = blocks ? run_try_wait : run_test_wait;
}

void decode_arrive(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                   bool drop, Op& op, BarrierExtra& extra) {
  if (drop) op.flags |= kDrop;
  if (modifiers.take("expect_tx")) op.flags |= kExpectTx;
  if (modifiers.take("noComplete")) op.flags |= kNoComplete;
  take_order(modifiers, op);
  const std::string_view space = take_space(modifiers);
  const bool needs_operand = (op.flags & (kExpectTx | kNoComplete)) != 0;
  decoder.expect_operands(instruction, needs_operand ? 3 : 2, 3);
  op.d = decoder.destination(instruction.operands[0], Type::b64);
  if (space == "shared::cluster" && op.d != kNoRef) {
    decoder.fail("an arrival at another block's mbarrier gives no state: the destination is _");
  }
  extra.address = decode_async_address(decoder, instruction.operands[1], space);
  if (instruction.operands.size() == 3) op.b = decoder.source(instruction.operands[2], Type::u32);
  op.run = run_arrive;
}

// init, inval, expect_tx, complete_tx: an address and at most a count.
void decode_plain(Decoder& decoder, const Instruction& instruction, Modifiers& modifiers,
                  Handler run, bool has_count, Op& op, BarrierExtra& extra) {
  take_order(modifiers, op);
  const std::string_view space = take_space(modifiers);
  const std::size_t count = has_count ? 2 : 1;
  decoder.expect_operands(instruction, count, count);
  extra.address = decode_async_address(decoder, instruction.operands[0], space);
  if (has_count) op.b = decoder.source(instruction.operands[1], Type::u32);
  op.run = run;
}

}  // namespace

void decode_mbarrier(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  auto extra = std::make_unique<BarrierExtra>();
  if (!modifiers.take("b64")) decoder.unknown();
  switch (modifiers.take_one_of({"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait",
                                 "pending_count", "complete_tx"})) {
    case 0:
      decode_plain(decoder, instruction, modifiers, run_init, true, op, *extra);
      break;
    case 1:
      decode_plain(decoder, instruction, modifiers, run_inval, false, op, *extra);
      break;
    case 2:
      decode_arrive(decoder, instruction, modifiers, false, op, *extra);
      break;
    case 3:
      decode_arrive(decoder, instruction, modifiers, true, op, *extra);
      break;
    case 4:
      decode_wait(decoder, instruction, modifiers, false, op, *extra);
      break;
    case 5:
      decode_wait(decoder, instruction, modifiers, true, op, *extra);
      break;
    case 6:
      decoder.expect_operands(instruction, 2, 2);
      op.d = decoder.destination(instruction.operands[0], Type::u32);
      op.a = decoder.source(instruction.operands[1], Type::b64);
      op.run = run_pending_count;
      break;
    case 7:
      decode_plain(decoder, instruction, modifiers, run_complete_tx, true, op, *extra);
      break;
    default:
      if (!modifiers.take("expect_tx")) decoder.unknown();
      decode_plain(decoder, instruction, modifiers, run_expect_tx, true, op, *extra);
  }
  modifiers.finish();
  op.extra = decoder.keep(std::move(extra));
}

}  // namespace kiln::runtime::emulator
