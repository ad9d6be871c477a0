// PTX registers to slots: registers whose lives do not overlap share one, so that a kernel of
// thousands of virtual registers runs in a few hundred rows that stay in the host's caches.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/emulator/decode/program.h"

namespace kiln::runtime::emulator {

struct Allocation {
  std::vector<Ref> row;  // by register index; a predicate's is an index of masks
  std::uint32_t slots = 0, predicates = 0;
};

// Whether the first operand (or the registers of a vector there) is written; all others are read.
bool defines_first_operand(const Instruction& instruction);

// A destination never shares a row with a source of the same instruction, so handlers may write one
// lane before they read the next. Registers that wgmma reads or writes, and copies of them, keep
// rows of their own: the hardware reads and writes them long after the instruction.
Allocation allocate_registers(const Function& function);

}  // namespace kiln::runtime::emulator
