// The key by which a kernel tells that a plan is one for its call.
#include <cstddef>
#include <cstring>

#include "jit/attention/varlen.h"
#include "jit/op/family.h"
#include "templates/attention/params.h"
#include "tests/cpu/problem_calls.h"
#include "tests/support/catch.h"
#include "tests/support/fake_driver.h"

namespace kiln {
namespace {

using testing::half;
using testing::result;

// A call over pages with a plan; with `has_memory`, its tensors have addresses, as those of a Plan
// that is made ahead need not.
unsigned long long key_of(bool has_memory, bool has_offsets) {
  const testing::FakeDriver fake;
  const auto tensor = [&](std::initializer_list<std::int64_t> shape, DType dtype = DType::i32) {
    TensorView view = half(shape, dtype);
    if (!has_memory) view.data = nullptr;
    return view;
  };
  TensorView out = result({6, 8, 128});
  if (!has_memory) out.data = nullptr;
  VarlenOptions options;
  options.cu_seqlens_q = tensor({4});
  (has_offsets ? options.cu_seqlens_k : options.seqused_k) = tensor({has_offsets ? 4 : 3});
  options.block_table = tensor({3, 5});
  options.plan = tensor({4096});
  options.max_seqlen_q = 2, options.max_seqlen_k = 80;
  AttentionProblem problem;
  problem.may_be_null = !has_memory;
  check_varlen(tensor({6, 8, 128}, DType::bf16), tensor({15, 16, 2, 128}, DType::bf16),
               tensor({15, 16, 2, 128}, DType::bf16), out, {}, options, problem);
  resolve(problem, device_of(0), false);
  AttentionVarlenParams params;
  std::memcpy(&params, problem.recipe.first().arguments.bytes().data(), sizeof params);
  return params.plan_key;
}

TEST_CASE("a plan's key does not depend on whether tensors have addresses", "[attention]") {
  CHECK(key_of(true, false) != 0);
  CHECK(key_of(true, false) == key_of(false, false));
  CHECK(key_of(true, true) == key_of(false, true));
  CHECK(key_of(true, false) != key_of(true, true));
}

}  // namespace
}  // namespace kiln
