// Which launch a call with a window gets on Hopper: its path, and how its tiles are dealt.
#include <cstring>
#include <string>

#include "jit/attention/problem.h"
#include "jit/op/family.h"
#include "templates/attention/params.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

using namespace kiln;
using kiln::testing::FakeDriver;

namespace {

struct Shape {
  int batch, len_q, len_kv, heads;
};

struct Launch {
  std::string path;
  int heads_paired;
};

// `left` < 0: causal without a window.
Launch launch_of(const Shape& shape, int left) {
  const FakeDriver fake;
  const auto view = [&](std::uintptr_t place, int length) {
    return contiguous_view(reinterpret_cast<void*>(place), DType::bf16, 0, shape.batch, length,
                           shape.heads, 128);
  };
  const TensorView q = view(1ull << 40, shape.len_q), out = view(2ull << 40, shape.len_q);
  const TensorView k = view(3ull << 40, shape.len_kv), v = view(4ull << 40, shape.len_kv);
  AttentionOptions options;
  options.causal = true;
  if (left >= 0) options.window_left = left;
  AttentionProblem problem;
  check_attention(q, k, v, out, TensorView{}, options, problem);
  resolve(problem, device_of(0), true);
  const Step& step = problem.recipe.first();
  AttentionParams params;
  std::memcpy(&params, step.arguments.bytes().data(), sizeof params);
  return {step.spec.kernel().path, params.heads_paired};
}

}  // namespace

TEST_CASE("A window as wide as the keys is dealt as causal tiles are") {
  const Shape prompts{.batch = 16, .len_q = 1024, .len_kv = 1024, .heads = 16};
  const Launch causal = launch_of(prompts, -1);
  CHECK(causal.heads_paired > 0);
  for (const int left : {1023, 1024, 4096}) {
    CHECK(launch_of(prompts, left).heads_paired == causal.heads_paired);
  }
  CHECK(launch_of(prompts, 1022).heads_paired == 0);
}

TEST_CASE("Few queries that see a narrow window are computed by Hopper's kernels") {
  const Shape chunk{.batch = 1, .len_q = 512, .len_kv = 65536, .heads = 8};
  CHECK(launch_of(chunk, 1024).path == "sm_90a");
  const Shape few{.batch = 1, .len_q = 512, .len_kv = 1024, .heads = 8};
  CHECK(launch_of(few, 1024).path == "portable");
}
