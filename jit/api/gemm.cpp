// The public entries of kiln/gemm.h.
#include "kiln/gemm.h"

#include "jit/api/call.h"
#include "jit/api/status.h"
#include "jit/gemm/problem.h"

namespace kiln {

void gemm(const TensorView& a, const TensorView& b, const TensorView& out,
          const GemmOptions& options, void* stream) {
  GemmProblem problem;
  check_gemm(a, b, out, options, problem);
  run(problem, options.workspace, stream);
}

Plan plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
               const GemmOptions& options) {
  GemmProblem problem;
  problem.may_be_null = true;
  check_gemm(a, b, out, options, problem);
  if (problem.empty()) require_vectors(problem.traits, problem.arguments());
  return plan(problem);
}

std::string explain_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                         const GemmOptions& options) {
  GemmProblem problem;
  problem.may_be_null = true;
  check_gemm(a, b, out, options, problem);
  return explain(problem, /*may_split=*/true, [&] {
    return ExplainedCall{problem.op, problem.k == 0 ? "K is 0: there is nothing to multiply" : "",
                         problem.measured_m == 0
                             ? ""
                             : tuned_tile_note("M = " + std::to_string(problem.measured_m))};
  });
}

Status try_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                const GemmOptions& options, void* stream) noexcept {
  return status_of([&] { gemm(a, b, out, options, stream); });
}

Status try_plan_gemm(const TensorView& a, const TensorView& b, const TensorView& out,
                     const GemmOptions& options, std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_gemm(a, b, out, options); });
}

}  // namespace kiln
