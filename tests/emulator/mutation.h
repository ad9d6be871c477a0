// Mutants of a kernel's PTX: each lacks or weakens one act of synchronisation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::testing {

struct Mutant {
  std::uint32_t line = 0;   // of the PTX, from 1
  std::string instruction;  // as it was
  std::string change;       // "deleted", "waits for one group less", …
  std::string ptx;          // the whole mutated module; line numbers are those of the original
};

// All mutants: every wait, fence, arrive, barrier, commit, parity and expected byte count, one at a
// time.
std::vector<Mutant> mutants_of(std::string_view ptx);

// The module with a trap in place of the instruction at `line`, which must be a mutant's: where it
// runs without a fault, nobody executes that instruction.
std::string trapping(std::string_view ptx, std::uint32_t line);

}  // namespace kiln::testing
