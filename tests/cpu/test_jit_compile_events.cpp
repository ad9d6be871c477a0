// The events that listeners of misses are told, and when. Calls are made on the fake driver, so
// that nothing is compiled here.
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "kiln/control.h"
#include "kiln/gemm.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;

namespace {

// A call whose kernel no cache has, as this number stands in its epilogue.
struct Missed {
  FakeDriver fake;
  TensorView a = contiguous_view(reinterpret_cast<void*>(0x10000), DType::bf16, 0, 64, 64);
  TensorView out = contiguous_view(reinterpret_cast<char*>(0x1000000), DType::bf16, 0, 64, 64);
  NoCompile guard;

  void run(int number) {
    GemmOptions options;
    const std::string epilogue = "acc + " + std::to_string(number) + ".25f";
    options.epilogue = epilogue;
    CHECK_THROWS_AS(gemm(a, a, out, options, nullptr), CompileDisabled);
  }
};

}  // namespace

TEST_CASE("a listener is told of a refusal until it is removed") {
  Missed missed;
  std::vector<CompileEvent> events;
  const auto number =
      add_compile_listener([&](const CompileEvent& event) { events.push_back(event); });
  missed.run(1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].outcome == "refused");
  CHECK(events[0].why == "not in the cache, and compiling is off");
  CHECK(events[0].key.size() == 64);
  CHECK(events[0].seconds == 0);
  CHECK(nlohmann::json::parse(events[0].spec)["epilogue"] == "acc + 1.25f");
  CHECK(remove_compile_listener(number));
  CHECK_FALSE(remove_compile_listener(number));
  missed.run(2);
  CHECK(events.size() == 1);
}

TEST_CASE("a stream that is captured is a refusal of its own") {
  Missed missed;
  std::vector<std::string> reasons;
  const auto number =
      add_compile_listener([&](const CompileEvent& event) { reasons.push_back(event.why); });
  missed.fake->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  missed.run(3);
  remove_compile_listener(number);
  CHECK(reasons == std::vector<std::string>{"its stream is being captured"});
}

TEST_CASE("a listener may miss the same kernel again, and what it throws changes nothing") {
  Missed missed;
  int told = 0;
  const auto number = add_compile_listener([&](const CompileEvent&) {
    if (++told == 1) missed.run(4);
    throw std::runtime_error("mine");
  });
  std::vector<std::string> lines;
  set_log_sink([&](int, const std::string& text) { lines.push_back(text); });
  missed.run(4);
  set_log_sink(nullptr);
  remove_compile_listener(number);
  CHECK(told == 2);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("a listener of on_compile failed") == 0);
  CHECK(lines[0].find("mine") != std::string::npos);
}

TEST_CASE("listeners and sinks may throw what is not an exception") {
  Missed missed;
  int told = 0;
  const auto first = add_compile_listener([](const CompileEvent&) { throw 1; });
  const auto second = add_compile_listener([&](const CompileEvent&) { ++told; });
  set_log_sink([](int, const std::string&) { throw 2; });
  missed.run(4);
  set_log_sink(nullptr);
  remove_compile_listener(first);
  remove_compile_listener(second);
  CHECK(told == 1);
}
