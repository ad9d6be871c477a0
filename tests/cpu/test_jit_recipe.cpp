// Recipes of several launches, on the fake driver: which kernels run with which arguments, in which
// order, what happens where kernels are missing, and where recipes and argument blocks end. The
// cache folder is that of test_jit_engine.cpp, in the same executable.
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "jit/api/kvcache_call.h"
#include "jit/compile/kernel_source.h"
#include "jit/norm/config.h"
#include "jit/norm/problem.h"
#include "jit/op/launch.h"
#include "kiln/control.h"
#include "templates/norm/params.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;
using kiln::testing::message_of;
using nlohmann::json;

namespace {

char* const kMemory = reinterpret_cast<char*>(0x100000);
char* const kOut = reinterpret_cast<char*>(0x900000);
constexpr int kRows = 4, kColumns = 65536;

// RMS norm of few, very wide rows: two launches. The kernels come from entries made by hand, whose
// images have the numbers 1 and 2.
struct TwoLaunches {
  FakeDriver fake;
  std::vector<std::size_t> asked;  // of the allocator
  NormOptions options;
  TensorView x = contiguous_view(kMemory, DType::bf16, 0, kRows, kColumns);
  TensorView weight = contiguous_view(kMemory + 0x80000, DType::bf16, 0, kColumns);
  TensorView out = contiguous_view(kOut, DType::bf16, 0, kRows, kColumns);

  TwoLaunches() {
    fake->argument_bytes = sizeof(NormParams);
    clear_memory_cache();
    disk_cache().clear();
    options.workspace = {[](void* self, std::size_t bytes) -> void* {
                           static_cast<TwoLaunches*>(self)->asked.push_back(bytes);
                           return kMemory + 0x40;
                         },
                         this};
  }
  NormProblem chosen() {
    NormProblem problem(NormKind::rms);
    check_norm(x, weight, {}, out, options, problem);
    resolve(problem, device_of(0), /*may_split=*/true);
    return problem;
  }
  void publish(std::size_t step) {
    const NormProblem problem = chosen();
    const Specialization& spec = problem.recipe.steps()[step].spec;
    REQUIRE(disk_cache().put(
        source_of(spec, problem.texts).key,
        {kiln::testing::fake_cubin(static_cast<char>(step + 1)), "ptx", {{"arch", "sm_90"}}}));
  }
  void publish() { publish(0), publish(1); }
  void run() { rms_norm(x, weight, out, options); }
  std::size_t bytes() {
    const NormSplitConfig& config = norm_split_configs(1)[0];
    const int splits = norm_splits(kColumns, config.accesses() * 8);
    return static_cast<std::size_t>(norm_workspace_bytes(kRows, splits));
  }
  NormParams params(std::size_t launch) {
    NormParams params;
    std::memcpy(&params, fake->launches.at(launch).arguments.data(), sizeof params);
    return params;
  }
  bool programmatic(std::size_t launch) {
    for (const CUlaunchAttribute& attribute : fake->launches.at(launch).attributes) {
      if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
        return attribute.value.programmaticStreamSerializationAllowed != 0;
      }
    }
    return false;
  }
  // The specs that a call names which may not compile.
  json missing() {
    const NoCompile guard;
    try {
      run();
    } catch (const CompileDisabled& error) {
      return json::parse(error.spec());
    }
    FAIL("expected CompileDisabled");
    return {};
  }
};

}  // namespace

TEST_CASE("a call of two launches makes both, in order, on one workspace") {
  TwoLaunches call;
  call.publish();
  call.run();
  REQUIRE(call.fake->launches.size() == 2);
  CHECK(call.asked == std::vector<std::size_t>{call.bytes()});
  const int splits = static_cast<int>(call.bytes() / 16 / kRows);
  CHECK(splits > 1);
  for (std::size_t i : {0, 1}) {
    const FakeLaunch& launch = call.fake->launches[i];
    CAPTURE(i);
    CHECK(launch.function == numbered(kFakeFunction, i + 1));
    CHECK(launch.config.gridDimX == static_cast<unsigned>(kRows * splits));
    const NormParams params = call.params(i);
    CHECK(params.x == kMemory);
    CHECK(params.weight == kMemory + 0x80000);
    CHECK(params.out == kOut);
    CHECK(params.workspace == kMemory + 0x40);
    CHECK(params.rows == kRows);
    CHECK(params.columns == kColumns);
    CHECK(params.splits == splits);
  }
  CHECK_FALSE(call.programmatic(0));  // what comes before it must be over
  CHECK(call.programmatic(1));
}

TEST_CASE("where a device knows no programmatic launches, the second is an ordinary one") {
  TwoLaunches call;
  call.fake->compute_major = 8;
  call.publish();
  call.run();
  REQUIRE(call.fake->launches.size() == 2);
  CHECK_FALSE(call.programmatic(1));
}

TEST_CASE("without a workspace a call makes one launch") {
  TwoLaunches call;
  call.options.workspace = {};
  NormProblem problem(NormKind::rms);
  check_norm(call.x, call.weight, {}, call.out, call.options, problem);
  resolve(problem, device_of(0), /*may_split=*/false);
  CHECK(problem.recipe.steps().size() == 1);
  CHECK(problem.recipe.workspace_bytes == 0);
}

TEST_CASE("rows that no launch can hold say that they lack a workspace") {
  TwoLaunches call;
  call.fake->compute_major = 8;  // no clusters
  call.options.workspace = {};
  CHECK(kiln::testing::mentions(message_of<std::invalid_argument>([&] { call.run(); }),
                                "two launches that need a workspace: give options.workspace"));
  CHECK(call.fake->launches.empty());
}

TEST_CASE("nothing is launched unless every kernel is there, and all that miss are named") {
  TwoLaunches call;
  const json both = call.missing();
  REQUIRE(both.is_array());
  REQUIRE(both.size() == 2);
  CHECK(both[0]["op"] == "rms_norm");
  CHECK(both[0]["launch"] == 1);
  CHECK(both[1]["op"] == "rms_norm");
  CHECK(both[1]["launch"] == 2);

  call.publish(0);
  const json second = call.missing();
  REQUIRE(second.is_object());
  CHECK(second == both[1]);
  CHECK(call.fake->launches.empty());
  CHECK(call.asked.empty());

  call.publish(1);
  call.run();
  CHECK(call.fake->launches.size() == 2);
}

TEST_CASE("a missing first launch is named alone") {
  TwoLaunches call;
  call.publish(1);
  const json first = call.missing();
  REQUIRE(first.is_object());
  CHECK(first["launch"] == 1);
  CHECK(call.fake->launches.empty());
}

TEST_CASE("a plan gives its pointers to both launches") {
  TwoLaunches call;
  call.publish();
  const Plan plan = plan_rms_norm(call.x, call.weight, call.out, call.options);
  CHECK(plan.workspace_bytes() == call.bytes());
  for (int turn : {1, 2}) {
    char* const at = kMemory + turn * 0x1000;
    char* const out = kOut + turn * 0x1000;
    plan.launch({at, at + 0x100, out}, nullptr, at + 0x300);
    const auto turns = static_cast<std::size_t>(turn);
    REQUIRE(call.fake->launches.size() == 2 * turns);
    for (std::size_t i : {2 * turns - 2, 2 * turns - 1}) {
      const NormParams params = call.params(i);
      CHECK(params.x == at);
      CHECK(params.weight == at + 0x100);
      CHECK(params.out == out);
      CHECK(params.workspace == at + 0x300);
    }
  }
  CHECK(call.asked.empty());
}

TEST_CASE("a plan takes any pointers of tensors that none of its launches reads") {
  FakeDriver fake;
  clear_memory_cache();
  disk_cache().clear();
  // Without queries, a call appends its new keys and does no more.
  const TensorView q = contiguous_view(kMemory, DType::bf16, 0, 1, 0, 2, 64);
  const TensorView out = contiguous_view(kOut, DType::bf16, 0, 1, 0, 2, 64);
  const TensorView k = contiguous_view(kOut + 0x10000, DType::bf16, 0, 1, 16, 2, 64);
  const TensorView v = contiguous_view(kOut + 0x20000, DType::bf16, 0, 1, 16, 2, 64);
  KvCacheOptions options;
  options.cache_seqlens = contiguous_view(kMemory + 0x1000, DType::i32, 0, 1);
  options.k_new = contiguous_view(kMemory + 0x2000, DType::bf16, 0, 1, 3, 2, 64);
  options.v_new = contiguous_view(kMemory + 0x3000, DType::bf16, 0, 1, 3, 2, 64);
  KvCacheCall call;
  check_kvcache_call(q, k, v, out, {}, options, call);
  resolve(call, device_of(0), /*may_split=*/true);
  REQUIRE(call.recipe.steps().size() == 1);
  REQUIRE(disk_cache().put(source_of(call.recipe.first().spec, call.texts).key,
                           {kiln::testing::fake_cubin(), "ptx", {{"arch", "sm_90"}}}));
  const Plan plan = plan_flash_attention_with_kvcache(q, k, v, out, {}, options);
  plan.launch({kMemory + 1, kOut + 0x10000, kOut + 0x20000, kOut + 1, kMemory + 0x1000,
               kMemory + 0x2000, kMemory + 0x3000});
  CHECK(fake->launches.size() == 1);
}

TEST_CASE("a recipe has at most four steps") {
  Recipe recipe;
  for (int i = 1; i < 4; ++i) recipe.add().blocks = static_cast<unsigned>(i);
  CHECK(recipe.steps().size() == Recipe::kMaxSteps);
  CHECK_THROWS_AS(recipe.add(), std::length_error);
  CHECK(recipe.steps().size() == Recipe::kMaxSteps);
  const Recipe copy = recipe;
  REQUIRE(copy.steps().size() == 4);
  CHECK(copy.steps()[3].blocks == 3);
}

TEST_CASE("an argument block refuses what it has no room for") {
  CallArguments arguments;
  arguments.set_params(NormParams{});
  std::size_t words = 0;
  const std::size_t room = (CallArguments::kCapacity - arguments.size()) / 8;
  for (; words < room; ++words) arguments.add_word(words);
  CHECK(arguments.size() == CallArguments::kCapacity);
  CHECK_THROWS_AS(arguments.add_word(0), std::length_error);
  CHECK_THROWS_AS(arguments.add_float(1.0f), std::length_error);
  const TensorView tensor = contiguous_view(kMemory, DType::bf16, 0, 8);
  CHECK_THROWS_AS(arguments.add_pointer(arguments.size(), tensor, false), std::length_error);
  CHECK(arguments.size() == CallArguments::kCapacity);

  CallArguments pointers;
  pointers.set_params(NormParams{});
  for (std::size_t i = 0; i < CallArguments::kMaxPointers; ++i) {
    pointers.add_pointer(pointers.size(), tensor, false);
  }
  CHECK_THROWS_AS(pointers.add_pointer(pointers.size(), tensor, false), std::length_error);
  CHECK(pointers.pointers() == CallArguments::kMaxPointers);
  CHECK(pointers.spans().size() == CallArguments::kMaxPointers);
}

TEST_CASE("a copy of an argument block has all that is used, and is its own") {
  const TensorView read = contiguous_view(kMemory, DType::bf16, 0, 8);
  const TensorView written = contiguous_view(kOut, DType::f32, 0, 4);
  CallArguments arguments;
  NormParams params{};
  params.columns = 8;
  arguments.set_params(params);
  arguments.add_pointer(offsetof(NormParams, x), read, false);
  arguments.add_pointer(arguments.size(), written, true);
  arguments.add_word(0x1234);
  arguments.want_workspace(offsetof(NormParams, workspace), 16, 64);
  arguments.set_workspace(kMemory, 1);
  CallArguments copy;
  copy.set_params(NormParams{});
  for (int i = 0; i < 9; ++i) copy.add_pointer(copy.size(), read, false);
  copy = arguments;
  REQUIRE(copy.size() == arguments.size());
  CHECK(std::memcmp(copy.bytes().data(), arguments.bytes().data(), copy.size()) == 0);
  REQUIRE(copy.pointers() == 2);
  REQUIRE(copy.spans().size() == 3);
  CHECK(copy.spans()[1].address == reinterpret_cast<std::uint64_t>(kOut));
  CHECK(copy.spans()[1].written);
  CHECK(copy.spans()[2].address == reinterpret_cast<std::uint64_t>(kMemory) + 16);
  CHECK(copy.spans()[2].bytes == 64);
  CHECK(copy.wants_workspace());
  copy.set_pointer(1, kMemory + 8);
  CHECK(arguments.pointer(1) == reinterpret_cast<std::uint64_t>(kOut));
}
