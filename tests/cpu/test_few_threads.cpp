// Prewarming in a process that may have no more threads.
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "kiln/control.h"
#include "tests/support/catch.h"
#include "tests/support/limited_process.h"

using namespace kiln;

TEST_CASE("what a function of the caller throws ends prewarming, on whichever thread") {
  PrewarmOptions options;
  options.archs = {"sm_80"};
  options.jobs = 4;
  options.check_only = true;
  options.progress = [](const PrewarmProgress&) { throw std::runtime_error("enough"); };
  CHECK_THROWS_WITH(prewarm("{\"op\": \"gemm\"}", options), "enough");
  options.progress = nullptr;
  options.cancelled = []() -> bool { throw 7; };
  CHECK_THROWS_AS(prewarm("{\"op\": \"gemm\"}", options), int);
}

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
