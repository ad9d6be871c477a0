// Which of a kernel's registers wgmma holds beyond its own instruction, and who else touches them.
#include <algorithm>

#include "runtime/emulator/decode/register_allocation.h"
#include "runtime/emulator/matrix/groups.h"

namespace kiln::runtime::emulator {
namespace {

template <class F>
void for_each_register(const Operand& operand, F f) {
  if (operand.is(Operand::Kind::reg)) f(operand.reg);
  for (const Operand& item : operand.items) for_each_register(item, f);
}

bool is_plain_mov(const Function& function, const Instruction& instruction) {
  if (instruction.opcode != "mov" || instruction.operands.size() != 2) return false;
  const Operand& to = instruction.operands[0];
  return to.is(Operand::Kind::reg) && info(function.registers[to.reg].type).bits == 32;
}

// wgmma's own registers, then whatever moves tie to them. Forward: a copy of one in flight is in
// flight too. Backward: what is moved into one is as old as its source.
std::vector<bool> tracked_registers(const Function& function) {
  const std::size_t size = function.registers.size();
  std::vector<bool> own(size), copies(size), sources(size);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> moves;  // to, from
  for (const Instruction& instruction : function.body) {
    if (instruction.opcode == "wgmma") {
      for (const Operand& operand : instruction.operands) {
        if (!operand.is(Operand::Kind::vector)) continue;
        for_each_register(operand, [&](std::uint32_t reg) { own[reg] = true; });
      }
    } else if (is_plain_mov(function, instruction) &&
               instruction.operands[1].is(Operand::Kind::reg)) {
      moves.emplace_back(instruction.operands[0].reg, instruction.operands[1].reg);
    }
  }
  copies = sources = own;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [to, from] : moves) {
      if (copies[from] && !copies[to]) copies[to] = changed = true;
      if (sources[to] && !sources[from]) sources[from] = changed = true;
    }
  }
  for (std::size_t i = 0; i < size; ++i) copies[i] = copies[i] || sources[i];
  return copies;
}

}  // namespace

void mark_matrix_registers(Program& program) {
  const Function& function = *program.function;
  auto table = std::make_unique<MatrixRegisters>();
  const std::vector<bool> tracked = tracked_registers(function);
  table->id_of.assign(tracked.size(), MatrixRegisters::kNone);
  for (std::size_t reg = 0; reg < tracked.size(); ++reg) {
    // Ids run out at 65535 registers, far beyond what any warp has.
    if (!tracked[reg] || table->names.size() == MatrixRegisters::kNone) continue;
    table->id_of[reg] = static_cast<std::uint16_t>(table->names.size());
    table->names.push_back(function.registers[reg].name);
  }
  table->ops.resize(program.ops.size());
  for (std::size_t i = 0; i < function.body.size(); ++i) {
    const Instruction& instruction = function.body[i];
    if (instruction.opcode == "wgmma") continue;  // looks after its own
    MatrixRegisters::Uses& uses = table->ops[i];
    uses.first = static_cast<std::uint32_t>(table->uses.size());
    for (std::size_t operand = 0; operand < instruction.operands.size(); ++operand) {
      const bool write = operand == 0 && defines_first_operand(instruction);
      for_each_register(instruction.operands[operand], [&](std::uint32_t reg) {
        if (table->id_of[reg] == MatrixRegisters::kNone) return;
        table->uses.push_back({table->id_of[reg], write});
      });
    }
    uses.count = static_cast<std::uint32_t>(table->uses.size()) - uses.first;
    if (uses.count == 0) continue;
    program.ops[i].matrix = true;
    if (!is_plain_mov(function, instruction)) continue;
    const Operand& from = instruction.operands[1];
    uses.to = table->id_of[instruction.operands[0].reg];
    uses.plain_mov = uses.to != MatrixRegisters::kNone;
    uses.from_literal = from.is(Operand::Kind::integer) || from.is(Operand::Kind::real);
    if (from.is(Operand::Kind::reg)) uses.from = table->id_of[from.reg];
  }
  program.matrix_registers = std::move(table);
}

}  // namespace kiln::runtime::emulator
