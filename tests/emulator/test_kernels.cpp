// Kernels of every row of every config table, in every form that the built-in tables serve, on the
// emulated device, under both schedules: the PTX that NVRTC makes for sm_90, and what it makes for
// sm_100 by its other back end, which serves sm_120 too. kernel_list.h tells which kernels.
#include <string>
#include <string_view>

#include "jit/op/arch.h"
#include "jit/op/family.h"
#include "tests/emulator/kernel_case.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_list.h"

namespace kiln::testing {
namespace {

using runtime::emulator::Options;
using runtime::emulator::Schedule;

constexpr Capability kSm90{9, 0}, kSm100{10, 0};

Options options_of(Schedule schedule, std::uint64_t seed) {
  Options options;
  options.schedule = schedule;
  options.seed = seed;
  return options;
}

// Slices of the list, so that ctest runs them side by side: tests/CMakeLists.txt names them.
constexpr int kSlices = 4;

void check_slice(Capability capability, int slice) {
  int index = 0, checked = 0;
  for (const Specialization& spec : tested_kernels(arch_index(capability))) {
    if (index++ % kSlices != slice) continue;
    ++checked;
    const std::string what = describe(spec, {});
    CAPTURE(what);
    // Late in one of the sizes: the schedule meets each row in many kernels.
    const auto late = static_cast<int>(seeded(test_seed(), what) % KernelCase::kSizes);
    for (int size = 0; size < KernelCase::kSizes; ++size) {
      KernelCase kernel(spec, size);
      const auto eager = kernel.run(kernel.ptx(), options_of(Schedule::eager, 0));
      CHECK(kernel.error(eager) <= 1.0);
      if (size != late && !tests_all()) continue;
      const auto seed = static_cast<std::uint64_t>(index);
      // The same bits, whatever the order of warps and the time of copies.
      CHECK(kernel.run(kernel.ptx(), options_of(Schedule::late, seed)) == eager);
    }
  }
  CHECK(checked > (capability.major == 9 ? 20 : 2));  // sm_100 shares its rows with others
}

}  // namespace

TEST_CASE("kernels of sm_90 compute, slice 0", "[slice0]") { check_slice(kSm90, 0); }
TEST_CASE("kernels of sm_90 compute, slice 1", "[slice1]") { check_slice(kSm90, 1); }
TEST_CASE("kernels of sm_90 compute, slice 2", "[slice2]") { check_slice(kSm90, 2); }
TEST_CASE("kernels of sm_90 compute, slice 3", "[slice3]") { check_slice(kSm90, 3); }

TEST_CASE("kernels of sm_100 compute, slice 0", "[slice0]") { check_slice(kSm100, 0); }
TEST_CASE("kernels of sm_100 compute, slice 1", "[slice1]") { check_slice(kSm100, 1); }
TEST_CASE("kernels of sm_100 compute, slice 2", "[slice2]") { check_slice(kSm100, 2); }
TEST_CASE("kernels of sm_100 compute, slice 3", "[slice3]") { check_slice(kSm100, 3); }

TEST_CASE("the PTX is that of the kernel's own arch") {
  for (const Capability capability : {kSm90, kSm100}) {
    const int arch = arch_index(capability);
    const KernelCase kernel(tested_kernels(arch).front());
    const std::string target = ".target " + std::string(arch_table()[std::size_t(arch)].name);
    CHECK(kernel.ptx().find(target) != std::string::npos);
  }
}

}  // namespace kiln::testing
