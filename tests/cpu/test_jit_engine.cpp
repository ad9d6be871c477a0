// The flow of a call on the fake driver: memory, disk, policy, capture, threads. Kernels come from
// entries put into the cache by hand, so nothing is compiled here.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "jit/attention/problem.h"
#include "jit/compile/kernel_source.h"
#include "jit/gemm/problem.h"
#include "jit/op/arch.h"
#include "jit/op/launch.h"
#include "kiln/control.h"
#include "templates/gemm/params.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;
using kiln::testing::mentions;
using nlohmann::json;

namespace {

// Set before anything reads the settings; removed when the process ends.
struct CacheFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("kiln-engine-test-" + std::to_string(getpid()));
  CacheFolder() { setenv("KILN_CACHE_DIR", path.c_str(), 1); }
  ~CacheFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
} g_folder;

void* const kMemory = reinterpret_cast<void*>(0x10000);
char* const kResult = reinterpret_cast<char*>(0x1000000);  // what is written lies apart

struct Call {
  FakeDriver fake;
  TensorView a = contiguous_view(kMemory, DType::bf16, 0, 64, 32);
  TensorView b = contiguous_view(kMemory, DType::bf16, 0, 32, 48);
  TensorView out = contiguous_view(kResult, DType::bf16, 0, 64, 48);
  GemmOptions options;

  Call() {
    fake->argument_bytes = sizeof(GemmSm90Params<runtime::TensorMap>);
    clear_memory_cache();
    disk_cache().clear();
    reset_stats();
  }
  void publish() {
    GemmProblem problem;
    check_gemm(a, b, out, options, problem);
    resolve(problem, device_of(0), true);
    const Specialization& spec = problem.recipe.first().spec;
    REQUIRE(disk_cache().put(source_of(spec, problem.texts).key,
                             {kiln::testing::fake_cubin(), "ptx", {{"arch", "sm_90"}}}));
  }
  void run(void* stream = nullptr) { gemm(a, b, out, options, stream); }
  json counters() { return json::parse(stats()); }
};

// Of an sm_90a kernel, behind its tensor maps.
GemmParams gemm_params(const FakeLaunch& launch) {
  GemmSm90Params<runtime::TensorMap> params;
  REQUIRE(launch.arguments.size() == sizeof params);
  std::memcpy(&params, launch.arguments.data(), sizeof params);
  return params.gemm;
}

}  // namespace

TEST_CASE("a kernel on disk is loaded once and launched from memory afterwards") {
  Call call;
  call.publish();
  for (int i = 0; i < 3; ++i) call.run();
  CHECK(call.fake->launches.size() == 3);
  CHECK(call.fake->count("cuLibraryLoadData") == 1);
  const json counters = call.counters();
  CHECK(counters["disk_hits"] == json::array({1}));
  CHECK(counters["memory_hits"] == 2);
  CHECK(counters["compiles"] == 0);
  CHECK(counters["nvrtc_loaded"] == false);
}

TEST_CASE("the launch carries the problem's arguments and grid") {
  Call call;
  call.publish();
  call.run();
  const GemmParams params = gemm_params(call.fake->launches.back());
  CHECK(params.m == 64);
  CHECK(params.n == 48);
  CHECK(params.k == 32);
  CHECK(params.a == kMemory);
  CHECK(call.fake->launches.back().config.blockDimX % 32 == 0);
}

TEST_CASE("a miss under NoCompile raises with a spec that prewarms it") {
  Call call;
  const NoCompile guard;
  try {
    call.run();
    FAIL("expected CompileDisabled");
  } catch (const CompileDisabled& error) {
    const json spec = json::parse(error.spec());
    CHECK(spec["op"] == "gemm");
    CHECK(spec["layout"] == "nn");
    CHECK(std::string(error.what()).find("kiln prewarm") != std::string::npos);
  }
  CHECK(call.fake->launches.empty());
}

TEST_CASE("set_jit(off) refuses misses and serves hits") {
  Call call;
  const JitMode previous = set_jit(JitMode::off);
  CHECK_THROWS_AS(call.run(), CompileDisabled);
  call.publish();
  CHECK_NOTHROW(call.run());
  set_jit(previous);
}

TEST_CASE("a miss during capture raises and names preload; a hit launches") {
  Call call;
  call.publish();
  call.fake->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  void* const stream = &call;
  try {
    call.run(stream);
    FAIL("expected CompileDisabled");
  } catch (const CompileDisabled& error) {
    CHECK(std::string(error.what()).find("kiln.preload(") != std::string::npos);
    call.fake->capture = CU_STREAM_CAPTURE_STATUS_NONE;
    preload(error.spec(), 0);
  }
  call.fake->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  CHECK_NOTHROW(call.run(stream));
}

TEST_CASE("sixteen threads on one key load it once") {
  Call call;
  call.publish();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 16; ++i) threads.emplace_back([&] { call.run(); });
  }
  CHECK(call.fake->launches.size() == 16);
  CHECK(call.fake->count("cuLibraryLoadData") == 1);
}

TEST_CASE("a kernel that another process compiled meanwhile is a hit and no miss") {
  Call call;
  GemmProblem problem;
  check_gemm(call.a, call.b, call.out, call.options, problem);
  resolve(problem, device_of(0), true);
  const Specialization& spec = problem.recipe.first().spec;
  auto lock = disk_cache().lock(source_of(spec, problem.texts).key, 1);  // as that process
  std::jthread thread([&] { call.run(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  call.publish();
  lock.reset();
  thread.join();
  const json counters = call.counters();
  CHECK(counters["disk_hits"] == json::array({1}));
  CHECK(counters["misses"] == 0);
  CHECK(counters["compiles"] == 0);
}

TEST_CASE("an entry that the driver refuses is a miss") {
  Call call;
  call.publish();
  call.fake->failures["cuLibraryLoadData"] = CUDA_ERROR_NO_BINARY_FOR_GPU;
  const NoCompile guard;
  CHECK_THROWS_AS(call.run(), CompileDisabled);
}

TEST_CASE("a failing launch is a CudaError that names the call") {
  Call call;
  call.publish();
  call.fake->failures["cuLaunchKernelEx"] = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const Status status = try_gemm(call.a, call.b, call.out, call.options);
  CHECK(status.code == StatusCode::cuda_error);
  CHECK(status.message.find("cuLaunchKernelEx") != std::string::npos);
  call.fake->failures["cuLaunchKernelEx"] = CUDA_ERROR_OUT_OF_MEMORY;
  try {
    call.run();
    FAIL("expected CudaError");
  } catch (const CudaError& error) {
    CHECK(error.call() == "cuLaunchKernelEx");
    CHECK(error.name() == "CUDA_ERROR_OUT_OF_MEMORY");
    CHECK_FALSE(error.message().empty());
    CHECK(mentions(error.what(), error.message()));
  }
}

TEST_CASE("status twins report the kind of error") {
  Call call;
  call.b.dtype = DType::f16;
  CHECK(try_gemm(call.a, call.b, call.out).code == StatusCode::type_error);
  call.b.dtype = DType::bf16;
  call.b.shape[0] = 31;
  CHECK(try_gemm(call.a, call.b, call.out).code == StatusCode::invalid_argument);
}

TEST_CASE("an empty output launches nothing") {
  Call call;
  call.a.shape[0] = call.out.shape[0] = 0;
  call.run();
  CHECK(call.fake->launches.empty());
}

TEST_CASE("a plan launches with other pointers and checks them") {
  Call call;
  call.publish();
  call.a.data = call.b.data = call.out.data = nullptr;
  const Plan plan = plan_gemm(call.a, call.b, call.out);
  CHECK(plan.workspace_bytes() == 0);
  void* const other = reinterpret_cast<void*>(0x20000);
  plan.launch({kMemory, other, kResult});
  const GemmParams params = gemm_params(call.fake->launches.back());
  CHECK(params.a == kMemory);
  CHECK(params.b == other);
  CHECK_THROWS_AS(plan.launch({kMemory, other}), std::invalid_argument);
  CHECK_THROWS_AS(plan.launch({kMemory, reinterpret_cast<void*>(0x10002), kResult}),
                  std::invalid_argument);
}

TEST_CASE("a plan takes the pointers that it was planned with, whatever their alignment") {
  Call call;
  char* const memory = static_cast<char*>(kMemory);
  call.a.data = memory + 8;  // loads element by element, stores whole vectors
  call.publish();
  const Plan plan = plan_gemm(call.a, call.b, call.out);
  CHECK_NOTHROW(plan.launch({memory + 8, memory, kResult}));
  CHECK_NOTHROW(plan.launch({memory + 2, memory + 6, kResult}));
  CHECK(mentions(plan.try_launch({memory, memory, kResult + 8}).message, "multiple of 16 bytes"));
  CHECK(mentions(plan.try_launch({memory + 1, memory, kResult}).message, "multiple of 2 bytes"));
  CHECK(mentions(plan.try_launch({memory, nullptr, kResult}).message, "pointer 1 is null"));
  CHECK(call.fake->launches.size() == 2);
}

TEST_CASE("a plan of an aligned output takes the unaligned bias that it was planned with") {
  Call call;
  char* const memory = static_cast<char*>(kMemory);
  call.options.bias = contiguous_view(memory + 2, DType::bf16, 0, call.out.shape[1]);
  call.publish();
  const Plan plan = plan_gemm(call.a, call.b, call.out, call.options);
  CHECK_NOTHROW(plan.launch({memory, memory, kResult, memory + 2}));
  CHECK(mentions(plan.try_launch({memory, memory, kResult + 2, memory}).message,
                 "pointer 2 must be a multiple of 16 bytes"));
  CHECK(mentions(plan.try_launch({memory, memory, kResult, memory + 1}).message,
                 "pointer 3 must be a multiple of 2 bytes"));
}

TEST_CASE("a plan takes scales last, and reads those of columns alone by vectors") {
  Call call;
  char* const memory = static_cast<char*>(kMemory);
  call.options.config = GemmTile{128, 128, 64, 3};
  call.fake->argument_bytes = sizeof(GemmParams);
  call.options.scale_a = contiguous_view(memory, DType::f32, 0, call.out.shape[0]);
  call.options.scale_b = contiguous_view(memory, DType::f32, 0, call.out.shape[1]);
  call.publish();
  const Plan plan = plan_gemm(call.a, call.b, call.out, call.options);
  plan.launch({memory, memory, kResult, memory + 4, memory + 32});
  GemmParams params;  // of a portable kernel
  std::memcpy(&params, call.fake->launches.back().arguments.data(), sizeof params);
  CHECK(params.scale_a == static_cast<void*>(memory + 4));
  CHECK(params.scale_b == static_cast<void*>(memory + 32));
  CHECK(mentions(plan.try_launch({memory, memory, kResult, memory, memory + 4}).message,
                 "pointer 4 must be a multiple of 16 bytes"));
  CHECK(mentions(plan.try_launch({memory, memory, kResult, memory + 2, memory}).message,
                 "pointer 3 must be a multiple of 4 bytes"));
}

TEST_CASE("an attention plan takes its pointers in the order that kiln.h tells") {
  const FakeDriver fake;
  clear_memory_cache();
  char* const memory = static_cast<char*>(kMemory);
  const auto at = [&](int place) { return memory + 4 * place; };
  const auto lse_at = [&](int place) { return kResult + 0x100000 + 4 * place; };
  TensorView q = contiguous_view(memory, DType::bf16, 0, 1, 16, 4, 64);
  const TensorView out = contiguous_view(kResult, DType::bf16, 0, 1, 16, 4, 64);
  const TensorView lse = contiguous_view(lse_at(1), DType::f32, 0, 1, 4, 16);
  VariantDefinition definition;
  definition.tensors = {{"bias", DType::f32, {"kv"}}};
  definition.logits = "logit + bias";
  const BoundVariant bound =
      Variant(definition).bind({}, {contiguous_view(at(4), DType::f32, 0, 16)});
  AttentionOptions options;
  options.sinks = contiguous_view(at(3), DType::f32, 0, 4);
  options.alibi_slopes = contiguous_view(at(2), DType::f32, 0, 4);
  options.attn_mask = contiguous_view(at(10), DType::boolean, 0, 1, 4, 16, 16);
  options.window_left = 8;  // its words lie between those of the mask and the sinks
  options.variant = &bound;
  AttentionProblem problem;
  check_attention(q, q, q, out, lse, options, problem);
  resolve(problem, device_of(0), true);
  const Specialization& spec = problem.recipe.first().spec;
  REQUIRE(disk_cache().put(source_of(spec, problem.texts).key,
                           {kiln::testing::fake_cubin(), "ptx", {{"arch", "sm_90"}}}));
  std::optional<Plan> plan;
  REQUIRE(try_plan_flash_attention(q, q, q, out, lse, options, plan).ok());
  // q, k, v, out, lse, alibi_slopes, attn_mask, sinks, bias: each is found where the call itself
  // puts it.
  const void* const order[] = {memory, memory, memory, kResult, lse_at(1),
                               at(2),  at(10), at(3),  at(4)};
  REQUIRE(problem.arguments().pointers() == std::size(order));
  for (std::size_t i = 0; i < std::size(order); ++i) {
    CHECK(problem.arguments().pointer(i) == reinterpret_cast<std::uint64_t>(order[i]));
  }
  // Only q to out are moved in vectors.
  CHECK(plan->try_launch({memory, memory, memory, kResult, lse_at(5), at(6), at(11), at(7), at(9)})
            .ok());
  CHECK_FALSE(
      plan->try_launch({at(1), memory, memory, kResult, lse_at(5), at(6), at(11), at(7), at(9)})
          .ok());
  // The mask is read two keys at a time.
  char* const odd = at(11) + 1;
  CHECK_FALSE(
      plan->try_launch({memory, memory, memory, kResult, lse_at(5), at(6), odd, at(7), at(9)})
          .ok());
}

TEST_CASE("a plan holds its pointers to what the call holds its tensors to") {
  Call call;
  call.publish();
  const Plan plan = plan_gemm(call.a, call.b, call.out);
  char* const memory = static_cast<char*>(kMemory);
  const std::string expected = "gemm: out shares memory with a, which the call reads while it";
  CHECK(mentions(plan.try_launch({kResult, memory, kResult}).message, expected));
  CHECK(mentions(plan.try_launch({kResult + 16, memory, kResult}).message, expected));
  const auto a_bytes = 64 * 32 * 2;
  CHECK(plan.try_launch({kResult - a_bytes, memory, kResult}).ok());
  CHECK(mentions(plan.try_launch({kResult - a_bytes + 16, memory, kResult}).message, expected));

  call.options.residual = call.out;  // in place
  call.publish();
  const Plan in_place = plan_gemm(call.a, call.b, call.out, call.options);
  CHECK(in_place.try_launch({memory, memory, kResult, kResult}).ok());
  CHECK(mentions(in_place.try_launch({memory, memory, kResult, kResult + 16}).message,
                 "out shares memory with residual; it may be that very tensor"));
}

TEST_CASE("plans have twins that report instead of throwing") {
  Call call;
  std::optional<Plan> plan;
  {
    const NoCompile guard;
    CHECK(try_plan_gemm(call.a, call.b, call.out, {}, plan).code == StatusCode::compile_disabled);
    CHECK_FALSE(plan);
  }
  call.publish();
  REQUIRE(try_plan_gemm(call.a, call.b, call.out, {}, plan).ok());
  CHECK(plan->try_launch({kMemory, kMemory}).code == StatusCode::invalid_argument);
  CHECK(plan->try_launch({kMemory, kMemory, kResult}).ok());
  call.fake->failures["cuLaunchKernelEx"] = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  CHECK(plan->try_launch({kMemory, kMemory, kResult}).code == StatusCode::cuda_error);
}

TEST_CASE("config overrides the tile, within the table") {
  Call call;
  call.options.config = GemmTile{128, 128, 32, 99};
  CHECK(try_gemm(call.a, call.b, call.out, call.options).message.find("config must be one of") !=
        std::string::npos);
}

TEST_CASE("explain tells the path, the key and the layer without running") {
  Call call;
  const auto explain = [&] { return json::parse(explain_gemm(call.a, call.b, call.out, {})); };
  CHECK(explain()["layer"].is_null());
  call.publish();
  CHECK(explain()["layer"] == g_folder.path.string());
  call.run();
  CHECK(explain()["layer"] == "memory");
  CHECK(explain()["key"].get<std::string>().size() == 64);
  CHECK(call.fake->launches.size() == 1);
}
