// PyTorch's form of attention: what its broadcasting and masks become.
#include "jit/attention/sdpa.h"
#include "tests/cpu/problem_calls.h"
#include "tests/support/catch.h"

namespace kiln {
namespace {

using testing::half;

void* const kResult = testing::result({1}).data;

SdpaCall check(const TensorView& q, const TensorView& k, const TensorView& v,
               const TensorView& mask = {}, const SdpaOptions& options = {}) {
  TensorView out = scaled_dot_product_attention_output(q, k, v, options.enable_gqa);
  out.data = kResult;
  return check_sdpa(q, k, v, mask, out, options);
}

AttentionProblem problem_of(const SdpaCall& call) {
  AttentionProblem problem;
  problem.names = kSdpaNames;
  check_attention(call.query, call.key, call.value, call.out, {}, call.options, problem);
  return problem;
}

std::int64_t offset_of(const TensorView& view, void* from = testing::kMemory) {
  return static_cast<char*>(view.data) - static_cast<char*>(from);
}

TEST_CASE("sdpa: a batch of two dimensions is one launch where it lies in memory as one") {
  const TensorView q = half({2, 3, 4, 8, 64}), k = half({1, 1, 4, 9, 64});
  const SdpaCall call = check(q, k, k, half({8, 9}));
  CHECK(call.slices == 1);
  CHECK(call.query.shape[0] == 6);
  CHECK(call.query.strides[0] == 4 * 8 * 64);
  CHECK(call.key.shape[0] == 6);
  CHECK(call.key.strides[0] == 0);  // broadcast
  const AttentionProblem problem = problem_of(call);
  CHECK(problem.batch == 6);
  CHECK(problem.traits.attn_mask == DType::bf16);
}

TEST_CASE("sdpa: otherwise it is one for each outer entry") {
  TensorView q = half({2, 3, 4, 8, 64});
  std::swap(q.strides[0], q.strides[1]);
  const TensorView k = half({2, 3, 4, 9, 64}), mask = half({2, 1, 1, 8, 9}, DType::boolean);
  SdpaCall call = check(q, k, k, mask);
  CHECK(call.slices == 2);
  CHECK(problem_of(call).batch == 3);
  call.advance();
  CHECK(offset_of(call.query) == 2 * q.strides[0]);
  CHECK(offset_of(call.key) == 2 * 3 * 4 * 9 * 64);
  CHECK(offset_of(call.options.attn_mask) == 8 * 9);
  CHECK(offset_of(call.out, kResult) == 2 * 3 * 4 * 8 * 64);
}

TEST_CASE("sdpa: is_causal is aligned top-left") {
  const SdpaOptions causal{.is_causal = true};
  CHECK(problem_of(check(half({1, 1, 8, 64}), half({1, 1, 8, 64}), half({1, 1, 8, 64}), {}, causal))
            .traits.mask == Mask::causal);
  const AttentionProblem longer = problem_of(
      check(half({1, 1, 8, 64}), half({1, 1, 100, 64}), half({1, 1, 100, 64}), {}, causal));
  CHECK(longer.traits.mask == Mask::window);  // the diagonal lies elsewhere
  CHECK(longer.keys == 8);
}

TEST_CASE("attn_mask: two keys are read at once where every pair lies at the address of one") {
  const auto in_pairs = [](std::int64_t keys, TensorView mask) {
    const TensorView q = half({1, 4, 8, 64}), k = half({1, 4, keys, 64});
    return problem_of(check(q, k, k, mask)).traits.mask_pairs;
  };
  TensorView even = half({1, 4, 8, 10}, DType::boolean);
  CHECK(in_pairs(10, even));
  CHECK_FALSE(in_pairs(9, half({1, 4, 8, 9}, DType::boolean)));
  TensorView changed = even;
  changed.data = static_cast<char*>(even.data) + 1;
  CHECK_FALSE(in_pairs(10, changed));
  changed = even;
  changed.strides[2] = 11;
  CHECK_FALSE(in_pairs(10, changed));
  changed = even;
  changed.strides[3] = 2;
  CHECK_FALSE(in_pairs(10, changed));
  CHECK(in_pairs(10, half({1, 1, 1, 10}, DType::boolean)));       // broadcast over rows
  CHECK_FALSE(in_pairs(10, half({1, 1, 8, 1}, DType::boolean)));  // and over keys
}

TEST_CASE("top_left stands for causal alone") {
  testing::Attention call;
  call.options.top_left = true;
  CHECK(testing::contains(call.error(), "top_left needs causal and excludes a window"));
  call.options.causal = true;
  CHECK(call.error().empty());
  call.options.window_left = 4;
  CHECK(testing::contains(call.error(), "top_left needs causal and excludes a window"));
}

TEST_CASE("sdpa: one head of key and value serves all of query's without a copy") {
  const SdpaCall call = check(half({2, 8, 5, 64}), half({2, 1, 7, 64}), half({2, 1, 7, 64}));
  CHECK(problem_of(call).heads_kv == 1);
  const SdpaCall mixed = check(half({2, 1, 5, 64}), half({2, 8, 7, 64}), half({2, 1, 7, 64}));
  CHECK(mixed.query.shape[1] == 8);
  CHECK(mixed.query.strides[1] == 0);
  CHECK(mixed.value.strides[1] == 0);
  CHECK(mixed.out.shape[1] == 8);
}

TEST_CASE("sdpa: its twin reports, in PyTorch's words") {
  const TensorView q = half({1, 8, 5, 64});
  const Status status = try_scaled_dot_product_attention(q, q, q, {}, half({1, 8, 5, 32}));
  CHECK(status.code == StatusCode::invalid_argument);
  CHECK(testing::contains(status.message,
                          "scaled_dot_product_attention: out must have shape "
                          "[1, 8, 5, 64], got [1, 8, 5, 32]"));
}

}  // namespace
}  // namespace kiln
