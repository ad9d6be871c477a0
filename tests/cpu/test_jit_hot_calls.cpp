// A hot call allocates nothing between its arguments and the launch, whatever its options. The
// cache folder is that of test_jit_engine.cpp, in the same executable.
#include <cstdlib>
#include <new>
#include <string>

#include "jit/api/c_structs.h"
#include "jit/attention/problem.h"
#include "jit/attention/sdpa.h"
#include "jit/attention/tuning.h"
#include "jit/compile/kernel_source.h"
#include "jit/gemm/problem.h"
#include "jit/gemm/tuning.h"
#include "jit/op/launch.h"
#include "kiln/control.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;

namespace {
thread_local std::size_t t_allocations = 0;
}  // namespace

// For the whole executable; they only count. Inlined, GCC would take their insides for mismatched.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++t_allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++t_allocations;
  return std::malloc(size > 0 ? size : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

void* const kMemory = reinterpret_cast<void*>(0x10000);
void* const kResult = reinterpret_cast<void*>(0x1000000);

// Allocations of a call before the driver's launch, as run() of jit/op/launch.h does it, once the
// kernel is there; it comes from an entry made by hand.
template <class Problem, class Check>
std::size_t hot_allocations(Check&& check) {
  const FakeDriver fake;
  clear_memory_cache();
  Problem problem;
  check(problem);
  resolve(problem, device_of(0), true);
  const Specialization& spec = problem.recipe.first().spec;
  REQUIRE(disk_cache().put(source_of(spec, problem.texts).key,
                           {kiln::testing::fake_cubin(), "ptx", {{"arch", "sm_90"}}}));
  const auto call = [&] {
    Problem again;
    check(again);
    runtime::Device& device = device_of(again.device_ordinal);
    resolve(again, device, true);
    void* const stream = nullptr;
    const RecipeKernels kernels = find_kernels(again.recipe, again.texts, device, &stream);
    return kernels[0] != nullptr ? again.recipe.first().blocks : 0;
  };
  call();
  call();
  const std::size_t before = t_allocations;
  const unsigned blocks = call();
  const std::size_t after = t_allocations;
  CHECK(blocks > 0);
  return after - before;
}

}  // namespace

TEST_CASE("a hot GEMM with a tile and a long epilogue of the caller's allocates nothing") {
  const TensorView a = contiguous_view(kMemory, DType::bf16, 0, 64, 64);
  const TensorView out = contiguous_view(kResult, DType::bf16, 0, 64, 64);
  GemmOptions options;
  options.config = GemmTile{128, 128, 64, 3};
  const std::string epilogue = "acc > 0.0f ? acc * 2.0f : acc * 0.25f + (row == col ? 1.0f : 0.0f)";
  options.epilogue = epilogue;
  CHECK(hot_allocations<GemmProblem>(
            [&](GemmProblem& problem) { check_gemm(a, a, out, options, problem); }) == 0);
}

TEST_CASE("a hot GEMM with a bound epilogue allocates nothing") {
  const TensorView a = contiguous_view(kMemory, DType::bf16, 0, 64, 64);
  const TensorView out = contiguous_view(kResult, DType::i8, 0, 64, 64);
  EpilogueDefinition definition;
  definition.params = {{"strength", DType::f32}};
  definition.tensors = {{"a_scale_with_a_long_name", DType::f32, {"m", "*"}}};
  definition.value = "acc * strength * a_scale_with_a_long_name[row, col]";
  const BoundEpilogue bound =
      Epilogue(definition).bind({0.5}, {contiguous_view(kMemory, DType::f32, 0, 64, 8)});
  GemmOptions options;
  options.bound_epilogue = &bound;
  CHECK(hot_allocations<GemmProblem>(
            [&](GemmProblem& problem) { check_gemm(a, a, out, options, problem); }) == 0);
}

TEST_CASE("a hot attention call with every option allocates nothing") {
  const TensorView q = contiguous_view(kMemory, DType::bf16, 0, 1, 64, 4, 64);
  const TensorView out = contiguous_view(kResult, DType::bf16, 0, 1, 64, 4, 64);
  VariantDefinition definition;
  definition.params = {{"strength", DType::f32}};
  definition.tensors = {{"a_bias_with_a_long_name", DType::f32, {"h", "kv"}}};
  definition.logits = "logit + strength * a_bias_with_a_long_name";
  const BoundVariant bound =
      Variant(definition).bind({0.5}, {contiguous_view(kMemory, DType::f32, 0, 4, 64)});
  AttentionOptions options;
  options.causal = true;
  options.window_left = 16;
  options.softcap = 30.0f;
  options.sinks = options.alibi_slopes = contiguous_view(kMemory, DType::f32, 0, 4);
  options.attn_mask = contiguous_view(kMemory, DType::boolean, 0, 1, 1, 64, 64);
  options.variant = &bound;
  CHECK(hot_allocations<AttentionProblem>([&](AttentionProblem& problem) {
          check_attention(q, q, q, out, {}, options, problem);
        }) == 0);
}

TEST_CASE("a hot call of PyTorch's form allocates nothing") {
  const TensorView q = contiguous_view(kMemory, DType::bf16, 0, 1, 4, 64, 64);
  const TensorView out = contiguous_view(kResult, DType::bf16, 0, 1, 4, 64, 64);
  const TensorView mask = contiguous_view(kMemory, DType::f32, 0, 64, 64);
  CHECK(hot_allocations<AttentionProblem>([&](AttentionProblem& problem) {
          const SdpaCall call = check_sdpa(q, q, q, mask, out, {});
          problem.names = kSdpaNames;
          check_attention(call.query, call.key, call.value, call.out, {}, call.options, problem);
        }) == 0);
}

TEST_CASE("a call from C has its structs translated without an allocation") {
  const std::int64_t shape[] = {64, 64}, window[] = {16, 0};
  const float number = 0.5f;
  const kiln_tensor a = kiln_contiguous(kMemory, KILN_BF16, KILN_CUDA, 0, 2, shape);
  kiln_gemm_options gemm{};
  gemm.struct_size = sizeof gemm;
  gemm.bias = gemm.residual = gemm.scale_a = gemm.scale_b = &a;
  gemm.alpha = &number;
  gemm.epilogue = "acc > 0.0f ? acc * 2.0f : acc * 0.25f + (row == col ? 1.0f : 0.0f)";
  kiln_attention_options attention{};
  attention.struct_size = sizeof attention;
  attention.window = window;
  attention.scale = &number;
  attention.sinks = attention.alibi_slopes = &a;
  const std::size_t before = t_allocations;
  const bool translated = view_of("gemm", "a", &a).given() && options_of(&gemm).scale_b.given() &&
                          options_of(&attention).sinks.given();
  const std::size_t after = t_allocations;
  CHECK(translated);
  CHECK(after == before);
}

TEST_CASE("a tuning table is looked up without an allocation") {
  std::vector<TunedGemm> entries;
  for (const int m : {1, 16, 64, 512, 4096}) entries.push_back({{.n = 4096, .k = 4096}, m, {}});
  const GemmTuning tuning(entries);
  const std::size_t before = t_allocations;
  const TunedGemm* found = tuning.find({.n = 4096, .k = 4096}, 50);
  const std::size_t after = t_allocations;
  REQUIRE(found != nullptr);
  CHECK(found->m == 64);
  CHECK(after == before);

  const AttentionTuning attention({{{.head_dim = 64}, 512, 512, {}}});
  const std::size_t earlier = t_allocations;
  const bool is_there = attention.find({.head_dim = 64}, 400, 512) != nullptr;
  const std::size_t later = t_allocations;
  CHECK(is_there);
  CHECK(later == earlier);
}
