// The public entries of kiln/merge_states.h.
#include "kiln/merge_states.h"

#include "jit/api/call.h"
#include "jit/api/status.h"
#include "jit/merge_states/problem.h"

namespace kiln {

void merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                  const TensorView& lse, const MergeStatesOptions& options, void* stream) {
  MergeProblem problem;
  check_merge_states(outs, lses, out, lse, options, problem);
  run(problem, {}, stream);
}

Plan plan_merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                       const TensorView& lse, const MergeStatesOptions& options) {
  MergeProblem problem;
  problem.may_be_null = true;
  check_merge_states(outs, lses, out, lse, options, problem);
  return plan(problem);
}

std::string explain_merge_states(const TensorView& outs, const TensorView& lses,
                                 const TensorView& out, const TensorView& lse,
                                 const MergeStatesOptions& options) {
  MergeProblem problem;
  problem.may_be_null = true;
  check_merge_states(outs, lses, out, lse, options, problem);
  return explain(problem, /*may_split=*/false, [&] { return ExplainedCall{problem.op}; });
}

Status try_merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                        const TensorView& lse, const MergeStatesOptions& options,
                        void* stream) noexcept {
  return status_of([&] { merge_states(outs, lses, out, lse, options, stream); });
}

Status try_plan_merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                             const TensorView& lse, const MergeStatesOptions& options,
                             std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_merge_states(outs, lses, out, lse, options); });
}

}  // namespace kiln
