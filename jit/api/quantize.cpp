// The public entries of kiln/quantize.h.
#include "kiln/quantize.h"

#include "jit/api/call.h"
#include "jit/api/status.h"
#include "jit/quantize/problem.h"

namespace kiln {

void quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
              const QuantizeOptions& options, void* stream) {
  QuantizeProblem problem;
  check_quantize(x, out, scale, options, problem);
  run(problem, {}, stream);
}

Plan plan_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                   const QuantizeOptions& options) {
  QuantizeProblem problem;
  problem.may_be_null = true;
  check_quantize(x, out, scale, options, problem);
  return plan(problem);
}

std::string explain_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                             const QuantizeOptions& options) {
  QuantizeProblem problem;
  problem.may_be_null = true;
  check_quantize(x, out, scale, options, problem);
  return explain(problem, /*may_split=*/false, [&] { return ExplainedCall{problem.op}; });
}

Status try_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                    const QuantizeOptions& options, void* stream) noexcept {
  return status_of([&] { quantize(x, out, scale, options, stream); });
}

Status try_plan_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                         const QuantizeOptions& options, std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_quantize(x, out, scale, options); });
}

}  // namespace kiln
