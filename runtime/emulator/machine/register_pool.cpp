// setmaxnreg: registers a thread move between a block's warpgroups through a pool.
#include <string>

#include "runtime/emulator/decode/modifiers.h"
#include "runtime/emulator/machine/cluster_ops.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::int64_t kLeast = 24, kMost = 256, kStep = 8;
constexpr std::uint8_t kIncrease = 1;

// Every warp of the warpgroup must execute it, but none waits for the others: each moves registers
// of its own. The pool counts registers a thread, warp by warp.
Flow run_setmaxnreg(Warp& warp, const Op& op, Mask mask) {
  if (!warp.gathered(kAllLanes)) return Flow::blocked;
  if (mask != warp.live()) {
    raise(Fault::divergence, "setmaxnreg is guarded off in some lanes of its warp");
  }
  Block& block = warp.block();
  std::uint32_t& granted = block.warp_registers[static_cast<std::size_t>(warp.index())];
  const auto wanted = static_cast<std::uint32_t>(op.immediate);
  if (op.flags & kIncrease) {
    if (wanted < granted) {
      raise(Fault::register_budget, "setmaxnreg.inc to " + std::to_string(wanted) +
                                        " registers a thread where the warp has " +
                                        std::to_string(granted) + " already");
    }
    if (wanted - granted > block.register_pool) {
      return warp.block_on({Wait::Kind::registers, wanted, 0});
    }
    block.register_pool -= wanted - granted;
  } else {
    if (wanted > granted) {
      raise(Fault::register_budget, "setmaxnreg.dec to " + std::to_string(wanted) +
                                        " registers a thread where the warp has only " +
                                        std::to_string(granted));
    }
    block.register_pool += granted - wanted;
  }
  granted = wanted;
  return Flow::next;
}

}  // namespace

void check_register_trades(const Warp& warp) {
  const std::vector<std::uint32_t>& granted = warp.block().warp_registers;
  const auto index = static_cast<std::size_t>(warp.index());
  const std::size_t first = index / 4 * 4;
  if (granted[index] == granted[first]) return;
  raise(Fault::register_budget,
        "warp " + std::to_string(index) + " ends with " + std::to_string(granted[index]) +
            " registers a thread and warp " + std::to_string(first) +
            " of the same warpgroup with " + std::to_string(granted[first]) +
            ": not all four warps have executed setmaxnreg");
}

void decode_setmaxnreg(Decoder& decoder, const Instruction& instruction, Op& op) {
  Modifiers modifiers(decoder, instruction);
  const bool increases = modifiers.take("inc");
  if (!increases && !modifiers.take("dec")) decoder.unknown();
  if (!modifiers.take("sync") || !modifiers.take("aligned") || !modifiers.take("u32")) {
    decoder.unknown();
  }
  modifiers.finish();
  decoder.expect_operands(instruction, 1, 1);
  op.immediate = decoder.literal(instruction.operands[0]);
  if (op.immediate < kLeast || op.immediate > kMost || op.immediate % kStep != 0) {
    decoder.fail("setmaxnreg takes 24 to 256 registers in steps of 8, got " +
                 std::to_string(op.immediate));
  }
  op.flags = increases ? kIncrease : 0;
  op.run = run_setmaxnreg;
}

}  // namespace kiln::runtime::emulator
