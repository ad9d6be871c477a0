// Control flow: branches, ends, traps, pauses.
#include <algorithm>
#include <bit>
#include <string>

#include "runtime/emulator/async/barriers.h"
#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {
namespace {

Flow run_branch(Warp& warp, const Op& op, Mask mask) {
  return warp.jump(mask, static_cast<std::uint32_t>(op.immediate));
}

void decode_branch(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 1, 1);
  const Operand& target = instruction.operands[0];
  if (!target.is(Operand::Kind::label)) decoder.fail("expected a label");
  op.immediate = target.value;
  op.run = run_branch;
}

struct BranchTable final : OpExtra {
  std::vector<std::uint32_t> targets;
};

// One target at a time: the lanes of the first lane's target leave, the others try again.
Flow run_indexed_branch(Warp& warp, const Op& op, Mask mask) {
  const Program& program = warp.block().cluster().program();
  const auto& table = static_cast<const BranchTable&>(*program.extras[op.extra]);
  const std::uint32_t* index = warp.u32(op.a);
  const int first = std::countr_zero(mask);
  if (index[first] >= table.targets.size()) {
    raise(Fault::out_of_bounds,
          "index " + std::to_string(index[first]) + " into a branch table of " +
              std::to_string(table.targets.size()) + " labels",
          first);
  }
  Mask same = 0;
  for_each_lane(mask, [&](int lane) { same |= Mask{index[lane] == index[first]} << lane; });
  const Flow flow = warp.jump(same, table.targets[index[first]]);
  // jump() moved the lanes that stay behind the branch: they have not taken theirs yet.
  if (same != mask) --warp.group().pc;
  return flow;
}

void decode_indexed_branch(Decoder& decoder, const Instruction& instruction, Op& op) {
  if (!instruction.has("idx")) decoder.unknown();
  decoder.expect_operands(instruction, 2, 2);
  if (op.guard >= 0) decoder.unknown();
  op.a = decoder.source(instruction.operands[0], Type::u32);
  const Operand& label = instruction.operands[1];
  const auto& all = decoder.program().function->branch_targets;
  const auto at = static_cast<std::size_t>(label.value);
  if (!label.is(Operand::Kind::label) || at >= all.size()) decoder.fail("expected branch targets");
  auto table = std::make_unique<BranchTable>();
  table->targets = all[at];
  op.extra = decoder.keep(std::move(table));
  op.run = run_indexed_branch;
}

Flow run_exit(Warp&, const Op&, Mask) { return Flow::exit; }
void decode_exit(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 0, 0);
  op.run = run_exit;
}

Flow run_trap(Warp&, const Op&, Mask mask) {
  raise(Fault::trap, "the kernel executed trap", std::countr_zero(mask));
}
Flow run_failed_assertion(Warp&, const Op&, Mask mask) {
  raise(Fault::trap, "an assertion of the kernel has failed", std::countr_zero(mask));
}
void decode_trap(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 0, 0);
  op.run = instruction.has("assertion") ? run_failed_assertion : run_trap;  // calls.h
}

Flow run_pause(Warp&, const Op&, Mask) { return Flow::yield; }
void decode_nanosleep(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.expect_operands(instruction, 1, 1);
  op.run = run_pause;
}

Flow run_nothing(Warp&, const Op&, Mask) { return Flow::next; }
void decode_nothing(Decoder&, const Instruction&, Op& op) { op.run = run_nothing; }

constexpr OpcodeRow kRows[] = {
    {"bra", decode_branch},      {"brx", decode_indexed_branch}, {"ret", decode_exit},
    {"exit", decode_exit},       {"trap", decode_trap},          {"brkpt", decode_trap},
    {"bar", decode_barrier},     {"barrier", decode_barrier},    {"nanosleep", decode_nanosleep},
    {"pmevent", decode_nothing},
};

}  // namespace

std::span<const OpcodeRow> control_opcodes() { return kRows; }

}  // namespace kiln::runtime::emulator
