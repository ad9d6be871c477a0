#include "tests/emulated/equivalent_mutants.h"

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

// arrives_last() of base/ticket.cuh begins at the first fence of global memory.
std::uint32_t ticket_line(std::string_view ptx) {
  const auto fences = lines_of(ptx, "membar.gl");
  return fences.empty() ? ~std::uint32_t{0} : fences.front();
}

// The barrier between a GEMM's main loop and its epilogue.
bool is_after_main_loop(const Mutant& mutant, std::string_view ptx) {
  std::uint32_t last = 0;
  for (const std::uint32_t line : lines_of(ptx, "bar.sync")) {
    if (line < ticket_line(ptx)) last = line;
  }
  return starts(mutant, "bar.sync") && mutant.line == last;
}

}  // namespace

std::string_view why_not_modelled(const Specialization& spec, const Mutant& mutant,
                                  std::string_view ptx) {
  if (mutant.line >= ticket_line(ptx) &&
      (starts(mutant, "membar.gl") || starts(mutant, "bar.sync"))) {
    return "order of global memory, which the device keeps and does not check for races";
  }
  if (spec.family() == Family::attention && starts(mutant, "bar.warp.sync")) {
    return "a warp's lanes read what other lanes copied by ldmatrix alone, which the device "
           "executes for all lanes at once";
  }
  return {};
}

std::string_view why_equivalent(const Specialization& spec, const Mutant& mutant,
                                std::string_view ptx) {
  const bool copies = ptx.find("cp.async.") != std::string_view::npos;
  if (spec.family() == Family::gemm && !copies && is_after_main_loop(mutant, ptx)) {
    return "no copy is in flight, and behind the loop's own barrier only B's fragments are read, "
           "which the staged rows do not reach";
  }
  return {};
}

}  // namespace kiln::testing
