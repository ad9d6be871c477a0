#include "tests/emulated/equivalent_mutants.h"

#include <algorithm>

namespace kiln::testing {
namespace {

bool starts(const Mutant& mutant, std::string_view text) {
  return mutant.instruction.starts_with(text);
}

// Lines of the PTX, from 1, whose statement begins with `text`.
std::vector<std::uint32_t> lines_of(std::string_view ptx, std::string_view text) {
  std::vector<std::uint32_t> lines;
  for (const Mutant& mutant : mutants_of(ptx)) {
    if (mutant.change == "deleted" && starts(mutant, text)) lines.push_back(mutant.line);
  }
  return lines;
}

// The barrier between the main loop and the epilogue is the last of the kernel.
bool is_last_barrier(const Mutant& mutant, std::string_view ptx) {
  const auto lines = lines_of(ptx, "bar.sync");
  return starts(mutant, "bar.sync") && !lines.empty() && lines.back() == mutant.line;
}

// In arrives_last() of base/ticket.cuh: from the first fence of global memory on.
bool is_in_ticket(const Mutant& mutant, std::string_view ptx) {
  const auto fences = lines_of(ptx, "membar.gl");
  return !fences.empty() && mutant.line >= fences.front() &&
         (starts(mutant, "membar.gl") || starts(mutant, "bar.sync"));
}

}  // namespace

std::string_view why_equivalent(const Specialization& spec, const Mutant& mutant,
                                std::string_view ptx) {
  const bool copies = ptx.find("cp.async.") != std::string_view::npos;
  if (spec.family() == Family::gemm && !copies && is_last_barrier(mutant, ptx)) {
    return "no copy is in flight, and behind the loop's own barrier only B's fragments are read, "
           "which the staged rows do not reach";
  }
  if (spec.family() == Family::attention && starts(mutant, "bar.warp.sync")) {
    return "one-warp teams read what they copied by ldmatrix alone, which the emulated device "
           "executes for all lanes at once, when each has waited for its copies";
  }
  if (is_in_ticket(mutant, ptx)) {
    return "it orders global memory, which the emulated device keeps in order and does not check "
           "for races";
  }
  return {};
}

}  // namespace kiln::testing
