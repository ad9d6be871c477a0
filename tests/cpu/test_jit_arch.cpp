// Which architecture's code a device runs, and the names of architectures.
#include <stdexcept>

#include "jit/op/arch.h"
#include "tests/support/catch.h"

using namespace kiln;

TEST_CASE("arch: devices map to the code they run") {
  const auto name = [](int major, int minor) {
    return arch_table()[static_cast<std::size_t>(arch_index({major, minor}))].name;
  };
  CHECK(name(8, 0) == "sm_80");
  CHECK(name(8, 7) == "sm_86");
  CHECK(name(9, 0) == "sm_90");
  CHECK(name(10, 3) == "sm_100");
  CHECK(name(12, 1) == "sm_120");
  CHECK_THROWS_AS(arch_index({7, 5}), std::invalid_argument);
  CHECK(parse_arch("sm_90a") == Capability{9, 0});
  CHECK(parse_arch("120") == Capability{12, 0});
  CHECK(parse_arch("sm_87") == Capability{8, 7});
  CHECK(parse_arch("sm_100f") == Capability{10, 0});
  CHECK(parse_arch("sm_121a") == Capability{12, 1});
  for (const char* bad : {"", "sm_", "sm_75", "90b", "sm_9x", "hopper", "sm_900", "sm_99", "sm_129",
                          "sm_95a", "sm_80a", "sm_90f", "sm_090", "sm_90aa", "sm_110", "sm_-90"}) {
    CHECK_THROWS_AS(parse_arch(bad), std::invalid_argument);
  }
}
