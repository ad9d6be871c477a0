// The public entries of kiln/append_kv.h.
#include "kiln/append_kv.h"

#include "jit/api/call.h"
#include "jit/api/status.h"
#include "jit/append_kv/problem.h"

namespace kiln {

void append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
               const TensorView& v_cache, const TensorView& slot_mapping,
               const AppendKvOptions& options, void* stream) {
  AppendProblem problem;
  check_append_kv(key, value, k_cache, v_cache, slot_mapping, options, problem);
  run(problem, {}, stream);
}

Plan plan_append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
                    const TensorView& v_cache, const TensorView& slot_mapping,
                    const AppendKvOptions& options) {
  AppendProblem problem;
  problem.may_be_null = true;
  check_append_kv(key, value, k_cache, v_cache, slot_mapping, options, problem);
  return plan(problem);
}

std::string explain_append_kv(const TensorView& key, const TensorView& value,
                              const TensorView& k_cache, const TensorView& v_cache,
                              const TensorView& slot_mapping, const AppendKvOptions& options) {
  AppendProblem problem;
  problem.may_be_null = true;
  check_append_kv(key, value, k_cache, v_cache, slot_mapping, options, problem);
  return explain(problem, /*may_split=*/false, [&] { return ExplainedCall{problem.op}; });
}

Status try_append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
                     const TensorView& v_cache, const TensorView& slot_mapping,
                     const AppendKvOptions& options, void* stream) noexcept {
  return status_of([&] { append_kv(key, value, k_cache, v_cache, slot_mapping, options, stream); });
}

Status try_plan_append_kv(const TensorView& key, const TensorView& value, const TensorView& k_cache,
                          const TensorView& v_cache, const TensorView& slot_mapping,
                          const AppendKvOptions& options, std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of(
      [&] { plan = plan_append_kv(key, value, k_cache, v_cache, slot_mapping, options); });
}

}  // namespace kiln
