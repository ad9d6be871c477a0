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

}  // namespace

std::string_view why_equivalent(const Specialization& spec, const Mutant& mutant,
                                std::string_view ptx) {
  const bool copies = ptx.find("cp.async.") != std::string_view::npos;
  if (spec.family() == Family::gemm && !copies && is_last_barrier(mutant, ptx)) {
    return "no copy is in flight, and behind the loop's own barrier only B's fragments are read, "
           "which the staged rows do not reach";
  }
  return {};
}

}  // namespace kiln::testing
