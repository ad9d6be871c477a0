// Split launches on the fake driver: who is asked for the workspace, for how much, and what is
// refused. The cache folder is that of test_jit_engine.cpp, in the same executable.
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "jit/attention/config.h"
#include "jit/compile/kernel_source.h"
#include "jit/op/launch.h"
#include "kiln/control.h"
#include "templates/attention/params.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;
using kiln::testing::message_of;

namespace {

char* const kMemory = reinterpret_cast<char*>(0x10000);
char* const kKeys = reinterpret_cast<char*>(0x10000000);

// A caller's allocator that hands out one address and notes what it was asked for.
struct Allocator {
  void* memory = reinterpret_cast<void*>(0x90000);
  std::vector<std::size_t> asked;

  Workspace workspace() {
    return {[](void* self, std::size_t bytes) {
              static_cast<Allocator*>(self)->asked.push_back(bytes);
              return static_cast<Allocator*>(self)->memory;
            },
            this};
  }
};

// One query of 32 heads over 8192 keys of 8: eight tiles, whose keys sixteen blocks share.
struct Decode {
  static constexpr int kTiles = 8, kSplits = 16;

  FakeDriver fake;
  Allocator allocator;
  AttentionOptions options;
  TensorView q = contiguous_view(kMemory, DType::bf16, 0, 1, 1, 32, 128);
  TensorView k = contiguous_view(kKeys, DType::bf16, 0, 1, 8192, 8, 128);

  Decode() {
    fake->argument_bytes = sizeof(AttentionParams);
    clear_memory_cache();
    const AttentionProblem problem = chosen();
    const Specialization spec = problem.recipe.first().spec;
    REQUIRE(disk_cache().put(source_of(spec, problem.texts).key,
                             {kiln::testing::fake_cubin(), "ptx", {{"arch", "sm_90"}}}));
    options.workspace = allocator.workspace();
  }
  AttentionProblem checked() {
    AttentionProblem problem;
    check_attention(q, k, k, q, {}, options, problem);
    return problem;
  }
  AttentionProblem chosen() {
    AttentionProblem problem = checked();
    resolve(problem, device_of(0), /*may_split=*/true);
    return problem;
  }
  std::size_t bytes() {
    const auto row = static_cast<std::size_t>(chosen().recipe.first().spec.row());
    const AttentionConfig& config = attention_configs()[row];
    return static_cast<std::size_t>(
        attention_workspace_bytes(kTiles, kSplits, config.block_q, 128));
  }
  void run() { flash_attention(q, k, k, q, {}, options); }
  Plan plan() { return plan_flash_attention(q, k, k, q, {}, options); }
  static void launch(const Plan& plan, void* workspace = nullptr) {
    plan.launch({kMemory, kKeys, kKeys, kMemory}, nullptr, workspace);
  }

  AttentionParams last() {
    AttentionParams params;
    std::memcpy(&params, fake->launches.back().arguments.data(), sizeof params);
    return params;
  }
};

}  // namespace

TEST_CASE("a split call asks once, for what its launch needs") {
  Decode call;
  call.run();
  REQUIRE(call.bytes() > 0);
  CHECK(call.allocator.asked == std::vector<std::size_t>{call.bytes()});
  CHECK(call.fake->launches.back().config.gridDimX == Decode::kTiles * Decode::kSplits);
  const AttentionParams params = call.last();
  CHECK(params.splits == Decode::kSplits);
  CHECK(params.workspace == call.allocator.memory);
  CHECK(params.nonce != 0);
  call.run();
  CHECK(call.last().nonce != 0);
  CHECK(call.last().nonce != params.nonce);
}

TEST_CASE("a call without a workspace runs one split") {
  Decode call;
  call.options.workspace = {};
  call.run();
  CHECK(call.fake->launches.back().config.gridDimX == Decode::kTiles);
  CHECK(call.last().splits == 1);
  CHECK(call.last().workspace == nullptr);
}

TEST_CASE("a call that needs no workspace does not ask for one") {
  Decode call;
  call.k.shape[1] = 20;  // keys
  call.run();
  CHECK(call.allocator.asked.empty());
  CHECK(call.last().splits == 1);
  call.q.shape[0] = call.k.shape[0] = 0;  // batch
  call.run();
  CHECK(call.allocator.asked.empty());
  CHECK(call.fake->launches.size() == 1);
}

TEST_CASE("an allocator that returns null or an unaligned address is refused") {
  Decode call;
  const std::string asked =
      "workspace.allocate must return " + std::to_string(call.bytes()) + " bytes aligned to 16; ";
  call.allocator.memory = nullptr;
  CHECK(message_of<std::invalid_argument>([&] { call.run(); }) == asked + "it returned null");
  call.allocator.memory = kMemory + 8;
  CHECK(message_of<std::invalid_argument>([&] { call.run(); }) ==
        asked + "it returned an unaligned address");
  CHECK(try_flash_attention(call.q, call.k, call.k, call.q, {}, call.options).code ==
        StatusCode::invalid_argument);
  CHECK(call.fake->launches.empty());
}

TEST_CASE("what an allocator throws reaches the caller, and nothing is launched") {
  Decode call;
  call.options.workspace.allocate = [](void*, std::size_t) -> void* { throw std::bad_alloc(); };
  CHECK_THROWS_AS(call.run(), std::bad_alloc);
  CHECK(call.fake->launches.empty());
}

TEST_CASE("a plan tells the workspace that its launches demand") {
  Decode call;
  const Plan plan = call.plan();
  CHECK(plan.workspace_bytes() == call.bytes());
  CHECK(call.allocator.asked.empty());
  const std::string demand = "Plan::launch: this plan needs a workspace of " +
                             std::to_string(call.bytes()) +
                             " bytes aligned to 16 (workspace_bytes())";
  CHECK(message_of<std::invalid_argument>([&] { Decode::launch(plan); }) == demand);
  CHECK(message_of<std::invalid_argument>([&] { Decode::launch(plan, kMemory + 4); }) == demand);
  CHECK(plan.try_launch({kMemory, kKeys, kKeys, kMemory}).code == StatusCode::invalid_argument);
  CHECK(call.fake->launches.empty());

  Decode::launch(plan, kMemory + 32);
  const AttentionParams params = call.last();
  CHECK(params.splits == Decode::kSplits);
  CHECK(params.workspace == kMemory + 32);
  CHECK(call.fake->launches.back().config.gridDimX == Decode::kTiles * Decode::kSplits);
  Decode::launch(plan, kMemory + 32);
  CHECK(call.last().nonce != params.nonce);
  CHECK(call.allocator.asked.empty());
}

TEST_CASE("a plan is split even where its options have no allocator") {
  Decode call;
  call.options.workspace = {};
  CHECK(call.plan().workspace_bytes() == call.bytes());
}

TEST_CASE("a plan that needs no workspace runs with and without one") {
  Decode call;
  call.k.shape[1] = 20;
  const Plan plan = call.plan();
  CHECK(plan.workspace_bytes() == 0);
  Decode::launch(plan);
  Decode::launch(plan, kMemory + 4);
  CHECK(call.last().splits == 1);
  CHECK(call.fake->launches.size() == 2);
  call.q.shape[0] = call.k.shape[0] = 0;
  CHECK(call.plan().workspace_bytes() == 0);
}

TEST_CASE("an explanation tells splits and workspace") {
  Decode call;
  const auto explained = nlohmann::json::parse(
      explain_flash_attention(call.q, call.k, call.k, call.q, {}, call.options));
  CHECK(explained["splits"] == Decode::kSplits);
  CHECK(explained["workspace_bytes"] == call.bytes());
}
