// Mutation testing of every shipped kernel: deletes or weakens one act of synchronisation at a time
// and counts the mutants that a fault or a wrong result betrays. What survives is printed with its
// reason, or as unexplained.
//
//   kiln_mutate [--kernels SUBSTRING] [--every N] [--seeds 16] [--verbose]
//
// Exit code 1 when fewer than 95 % are caught or a survivor has no reason.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include "jit/arch.h"
#include "jit/config.h"
#include "jit/render.h"
#include "runtime/emulator/machine/faults.h"
#include "tests/emulated/equivalent_mutants.h"
#include "tests/emulated/kernel_case.h"
#include "tests/emulated/mutation.h"

namespace kiln::testing {
namespace {

using runtime::emulator::EmulatorError;
using runtime::emulator::Options;
using runtime::emulator::Schedule;

struct Arguments {
  std::string kernels;
  int every = 1;
  int seeds = 16;
  bool verbose = false;
};

struct Totals {
  int mutants = 0, caught = 0, explained = 0;
  std::map<std::string, int> by;                    // what caught them
  std::map<std::string, int, std::less<>> not_run;  // reasons
};

Options options_of(std::uint64_t seed) {
  Options options;
  options.schedule = Schedule::late;
  options.seed = seed;
  options.step_limit = 20'000'000;
  return options;
}

// One problem size of a kernel, with its right result.
struct Sized {
  KernelCase kernel;
  std::vector<std::byte> expected;

  Sized(const Specialization& spec, int size) : kernel(spec, size) {
    Options eager = options_of(0);
    eager.schedule = Schedule::eager;
    expected = kernel.run(kernel.ptx(), eager);
    if (kernel.error(expected) > 1 || kernel.run(kernel.ptx(), options_of(1)) != expected) {
      std::printf("%s: wrong before any mutation\n", describe(spec, {}).c_str());
      std::exit(1);
    }
  }
};

// What gives the mutant away, or empty.
std::string caught_by(std::deque<Sized>& sizes, const Mutant& mutant, int seeds) {
  for (int seed = 0; seed < seeds; ++seed) {
    for (Sized& sized : sizes) {
      try {
        if (sized.kernel.run(mutant.ptx, options_of(static_cast<std::uint64_t>(seed))) !=
            sized.expected) {
          return "wrong result";
        }
      } catch (const EmulatorError& error) {
        return std::string(name(error.fault()));
      }
    }
  }
  return {};
}

void test_kernel(const Specialization& spec, const Arguments& arguments, Totals& totals) {
  const std::string what = describe(spec, {});
  std::deque<Sized> sizes;
  for (int size = 0; size < KernelCase::kSizes; ++size) {
    sizes.emplace_back(spec, size);
  }
  const std::string& ptx = sizes.front().kernel.ptx();
  std::vector<Mutant> mutants = mutants_of(ptx);
  std::erase_if(mutants, [&](const Mutant& mutant) {
    const std::string_view reason = why_not_modelled(spec, mutant, ptx);
    if (!reason.empty()) ++totals.not_run[std::string(reason)];
    return !reason.empty();
  });
  int caught = 0;
  for (const Mutant& mutant : mutants) {
    const std::string by = caught_by(sizes, mutant, arguments.seeds);
    if (!by.empty()) {
      ++caught;
      ++totals.by[by];
      if (arguments.verbose) {
        std::printf("  caught by %s: line %u, %s, %s\n", by.c_str(), mutant.line,
                    mutant.instruction.c_str(), mutant.change.c_str());
      }
      continue;
    }
    const std::string_view reason = why_equivalent(spec, mutant, ptx);
    totals.explained += !reason.empty();
    std::printf("  survives: %s, line %u, %s, %s: %s\n", what.c_str(), mutant.line,
                mutant.instruction.c_str(), mutant.change.c_str(),
                reason.empty() ? "UNEXPLAINED" : std::string(reason).c_str());
  }
  totals.mutants += static_cast<int>(mutants.size());
  totals.caught += caught;
  std::printf("%-70s %3d of %3zu mutants caught\n", what.c_str(), caught, mutants.size());
  std::fflush(stdout);
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool has_value = i + 1 < argc;
    if (option == "--verbose") {
      arguments.verbose = true;
    } else if (option == "--kernels" && has_value) {
      arguments.kernels = argv[++i];
    } else if (option == "--every" && has_value && std::atoi(argv[i + 1]) > 0) {
      arguments.every = std::atoi(argv[++i]);
    } else if (option == "--seeds" && has_value && std::atoi(argv[i + 1]) > 0) {
      arguments.seeds = std::atoi(argv[++i]);
    } else {
      std::fprintf(
          stderr, "usage: kiln_mutate [--kernels SUBSTRING] [--every N] [--seeds N] [--verbose]\n");
      std::exit(2);
    }
  }
  return arguments;
}

}  // namespace
}  // namespace kiln::testing

int main(int argc, char** argv) {
  using namespace kiln::testing;
  const Arguments arguments = parse(argc, argv);
  Totals totals;
  int index = 0;
  for (const kiln::Specialization& spec :
       kiln::enumerate_specializations(kiln::arch_index({9, 0}))) {
    if (describe(spec, {}).find(arguments.kernels) == std::string::npos) continue;
    if (index++ % arguments.every == 0) test_kernel(spec, arguments, totals);
  }
  std::printf("caught %d of %d mutants (%.1f %%)\n", totals.caught, totals.mutants,
              totals.mutants ? 100.0 * totals.caught / totals.mutants : 0.0);
  for (const auto& [by, count] : totals.by) std::printf("  %5d by %s\n", count, by.c_str());
  for (const auto& [reason, count] : totals.not_run) {
    std::printf("  %5d more were not run: %s\n", count, reason.c_str());
  }
  const int unexplained = totals.mutants - totals.caught - totals.explained;
  std::printf("%d survivors have a reason, %d have none\n", totals.explained, unexplained);
  return totals.mutants > 0 && totals.caught * 100 >= totals.mutants * 95 && unexplained == 0 ? 0
                                                                                              : 1;
}
