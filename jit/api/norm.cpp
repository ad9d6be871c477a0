// The public entries of kiln/norm.h.
#include "kiln/norm.h"

#include "jit/api/call.h"
#include "jit/api/status.h"
#include "jit/norm/problem.h"

namespace kiln {
namespace {

void compute(NormKind kind, const TensorView& x, const TensorView& weight, const TensorView& bias,
             const TensorView& out, const NormOptions& options, void* stream) {
  NormProblem problem(kind);
  check_norm(x, weight, bias, out, options, problem);
  run(problem, options.workspace, stream);
}

Plan prepare(NormKind kind, const TensorView& x, const TensorView& weight, const TensorView& bias,
             const TensorView& out, const NormOptions& options) {
  NormProblem problem(kind);
  problem.may_be_null = true;
  check_norm(x, weight, bias, out, options, problem);
  return plan(problem);
}

std::string tell(NormKind kind, const TensorView& x, const TensorView& weight,
                 const TensorView& bias, const TensorView& out, const NormOptions& options) {
  NormProblem problem(kind);
  problem.may_be_null = true;
  check_norm(x, weight, bias, out, options, problem);
  return explain(problem, /*may_split=*/true, [&] { return ExplainedCall{problem.op}; });
}

}  // namespace

void rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
              const NormOptions& options, void* stream) {
  compute(NormKind::rms, x, weight, {}, out, options, stream);
}

void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& out, const NormOptions& options, void* stream) {
  compute(NormKind::layer, x, weight, bias, out, options, stream);
}

Plan plan_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                   const NormOptions& options) {
  return prepare(NormKind::rms, x, weight, {}, out, options);
}

Plan plan_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                     const TensorView& out, const NormOptions& options) {
  return prepare(NormKind::layer, x, weight, bias, out, options);
}

std::string explain_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                             const NormOptions& options) {
  return tell(NormKind::rms, x, weight, {}, out, options);
}

std::string explain_layer_norm(const TensorView& x, const TensorView& weight,
                               const TensorView& bias, const TensorView& out,
                               const NormOptions& options) {
  return tell(NormKind::layer, x, weight, bias, out, options);
}

Status try_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                    const NormOptions& options, void* stream) noexcept {
  return status_of([&] { rms_norm(x, weight, out, options, stream); });
}

Status try_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                      const TensorView& out, const NormOptions& options, void* stream) noexcept {
  return status_of([&] { layer_norm(x, weight, bias, out, options, stream); });
}

Status try_plan_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                         const NormOptions& options, std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_rms_norm(x, weight, out, options); });
}

Status try_plan_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                           const TensorView& out, const NormOptions& options,
                           std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_layer_norm(x, weight, bias, out, options); });
}

}  // namespace kiln
