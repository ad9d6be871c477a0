// Where a warp is, in words: for reports and traces.
#include <algorithm>
#include <cstdio>
#include <string>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {
namespace {

// The statement as the module's text has it, on one line.
std::string statement(const Program& program, const Instruction& instruction) {
  const std::string& text = *program.module->text;
  const char* const begin = text.data();
  const auto at = static_cast<std::size_t>(instruction.opcode.data() - begin);
  if (at >= text.size()) return instruction.text();
  const std::size_t end = std::min(text.find(';', at), at + 160);
  std::string line;
  for (char c : std::string_view(text).substr(at, end - at)) {
    const bool blank = c == '\n' || c == '\t' || c == ' ' || c == '\r';
    if (blank && (line.empty() || line.back() == ' ')) continue;
    line += blank ? ' ' : c;
  }
  return line;
}

std::string lanes_text(Mask mask) { return "lanes " + hex(mask); }

}  // namespace

const Instruction* instruction_at(const Warp& warp, std::uint32_t pc) {
  const auto& body = warp.block().cluster().program().function->body;
  return pc < body.size() ? &body[pc] : nullptr;
}

Site site_of(const Warp& warp, int lane) {
  const Program& program = warp.block().cluster().program();
  Site site;
  site.kernel = program.kernel;
  site.block = warp.block().id();
  site.warp = warp.index();
  site.lane = lane;
  if (warp.groups().empty()) return site;
  if (const Instruction* instruction = instruction_at(warp, warp.group().pc)) {
    site.ptx_line = instruction->line;
    site.instruction = statement(program, *instruction);
    site.source = program.module->location_text(instruction->location);
  }
  return site;
}

std::string describe(const Warp& warp, const Wait& wait) {
  switch (wait.kind) {
    case Wait::Kind::lanes:
      return "waits for " + lanes_text(wait.id & warp.live()) + " of its warp";
    case Wait::Kind::barrier: {
      const NamedBarrier& barrier = warp.block().barrier(wait.id);
      std::string text = "waits at barrier " + std::to_string(wait.id) + ", where " +
                         std::to_string(barrier.arrived) + " threads have arrived";
      if (barrier.expected != 0) text += " of " + std::to_string(barrier.expected);
      return text;
    }
    case Wait::Kind::mbarrier:
      return "waits for phase parity " + std::to_string(wait.parity) + " of the mbarrier at " +
             hex(wait.id) + ", " + describe_mbarrier(warp.block().cluster(), wait.id);
    case Wait::Kind::cluster_barrier:
      return "waits at the cluster barrier, where " +
             std::to_string(warp.block().cluster().barrier().arrived) + " threads have arrived";
    case Wait::Kind::registers:
      return "waits for " + std::to_string(wait.id) +
             " registers a thread, which nobody left to run can free";
    case Wait::Kind::none:
      break;
  }
  return "waits";
}

void trace(const Warp& warp, std::uint32_t pc, int lane) {
  const Program& program = warp.block().cluster().program();
  const Instruction* instruction = instruction_at(warp, pc);
  if (instruction == nullptr) return;
  std::string values;
  const Op& op = program.ops[pc];
  for (const Operand& operand : instruction->operands) {
    if (!operand.is(Operand::Kind::reg)) continue;
    // Only a scalar destination has its row at hand.
    const Type type = program.function->registers[operand.reg].type;
    if (op.d == kNoRef) break;
    const auto index = static_cast<std::size_t>(lane);
    std::uint64_t value = 0;
    if (type == Type::pred) {
      value = warp.predicate(op.d) >> lane & 1;
    } else {
      value = info(type).bits == 64 ? warp.u64(op.d)[index] : warp.u32(op.d)[index];
    }
    values = "  " + std::string(operand.name) + " = " + hex(value);
    break;
  }
  std::fprintf(stderr, "%6u  %-70s%s\n", instruction->line,
               statement(program, *instruction).c_str(), values.c_str());
}

}  // namespace kiln::runtime::emulator
