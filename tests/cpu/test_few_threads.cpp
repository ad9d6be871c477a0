// Prewarming in a process that may have no more threads.
#include <nlohmann/json.hpp>

#include "kiln/control.h"
#include "tests/support/catch.h"
#include "tests/support/limited_process.h"

using namespace kiln;

TEST_CASE("prewarming works on the threads that it gets") {
  const auto checks = [] {
    PrewarmOptions options;
    options.archs = {"sm_80"};
    options.jobs = 8;
    options.check_only = true;
    const auto report = nlohmann::json::parse(prewarm("{\"op\": \"gemm\"}", options));
    return report["total"] > 4 && report["kernels"].size() == report["total"];
  };
  CHECK(checks());
  CHECK(testing::holds_in_child([&] { return testing::forbid_threads() && checks(); }));
}
