// Every row of every config table, in every form that the built-in tables serve, on the emulated
// device: the PTX that NVRTC made for sm_90, under both schedules. Portable PTX of other archs
// differs in its .target line alone (test_targets), so it is run once.
#include <cstdlib>
#include <string>

#include "jit/arch.h"
#include "jit/config.h"
#include "jit/kernel_source.h"
#include "jit/render.h"
#include "tests/emulated/kernel_case.h"
#include "tests/support/catch.h"

namespace kiln::testing {
namespace {

using runtime::emulator::Options;
using runtime::emulator::Schedule;

Options options_of(Schedule schedule, std::uint64_t seed) {
  Options options;
  options.schedule = schedule;
  options.seed = seed;
  return options;
}

// Slices of the list, so that ctest runs them side by side.
constexpr int kSlices = 4;

void check_slice(int slice) {
  int index = 0;
  for (const Specialization& spec : enumerate_specializations(arch_index({9, 0}))) {
    if (index++ % kSlices != slice) continue;
    const std::string what = describe(spec, {});
    CAPTURE(what);
    for (int size = 0; size < KernelCase::kSizes; ++size) {
      KernelCase kernel(spec, size);
      const auto eager = kernel.run(kernel.ptx(), options_of(Schedule::eager, 0));
      CHECK(kernel.error(eager) <= 1.0);
      const auto seed = static_cast<std::uint64_t>(index);
      // The same bits, whatever the order of warps and the time of copies.
      CHECK(kernel.run(kernel.ptx(), options_of(Schedule::late, seed)) == eager);
    }
  }
  CHECK(index > 100);
}

}  // namespace

TEST_CASE("every kernel computes under both schedules, slice 0") { check_slice(0); }
TEST_CASE("every kernel computes under both schedules, slice 1") { check_slice(1); }
TEST_CASE("every kernel computes under both schedules, slice 2") { check_slice(2); }
TEST_CASE("every kernel computes under both schedules, slice 3") { check_slice(3); }

}  // namespace kiln::testing
