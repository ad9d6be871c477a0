// The public entries of kiln/moe.h.
#include "kiln/moe.h"

#include "jit/api/call.h"
#include "jit/api/status.h"
#include "jit/moe_permute/problem.h"
#include "jit/moe_route/problem.h"

namespace kiln {

// ----------------------------------------------------------------------------------- routing

void moe_route(const TensorView& logits, const TensorView& weights, const TensorView& experts,
               const MoeRouteOptions& options, void* stream) {
  RouteProblem problem;
  check_moe_route(logits, weights, experts, options, problem);
  run(problem, {}, stream);
}

Plan plan_moe_route(const TensorView& logits, const TensorView& weights, const TensorView& experts,
                    const MoeRouteOptions& options) {
  RouteProblem problem;
  problem.may_be_null = true;
  check_moe_route(logits, weights, experts, options, problem);
  return plan(problem);
}

std::string explain_moe_route(const TensorView& logits, const TensorView& weights,
                              const TensorView& experts, const MoeRouteOptions& options) {
  RouteProblem problem;
  problem.may_be_null = true;
  check_moe_route(logits, weights, experts, options, problem);
  return explain(problem, /*may_split=*/false, [&] { return ExplainedCall{problem.op}; });
}

Status try_moe_route(const TensorView& logits, const TensorView& weights, const TensorView& experts,
                     const MoeRouteOptions& options, void* stream) noexcept {
  return status_of([&] { moe_route(logits, weights, experts, options, stream); });
}

Status try_plan_moe_route(const TensorView& logits, const TensorView& weights,
                          const TensorView& experts, const MoeRouteOptions& options,
                          std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_moe_route(logits, weights, experts, options); });
}

// ----------------------------------------------------------------------------------- sorting

void moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                 const TensorView& offsets, const TensorView& inverse, const Workspace& workspace,
                 void* stream) {
  PermuteProblem problem;
  check_moe_permute(x, experts, out, offsets, inverse, problem);
  run(problem, workspace, stream);
}

Plan plan_moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                      const TensorView& offsets, const TensorView& inverse) {
  PermuteProblem problem;
  problem.may_be_null = true;
  check_moe_permute(x, experts, out, offsets, inverse, problem);
  return plan(problem);
}

std::string explain_moe_permute(const TensorView& x, const TensorView& experts,
                                const TensorView& out, const TensorView& offsets,
                                const TensorView& inverse) {
  PermuteProblem problem;
  problem.may_be_null = true;
  check_moe_permute(x, experts, out, offsets, inverse, problem);
  return explain(problem, /*may_split=*/true, [&] { return ExplainedCall{problem.op}; });
}

Status try_moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                       const TensorView& offsets, const TensorView& inverse,
                       const Workspace& workspace, void* stream) noexcept {
  return status_of([&] { moe_permute(x, experts, out, offsets, inverse, workspace, stream); });
}

Status try_plan_moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                            const TensorView& offsets, const TensorView& inverse,
                            std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_moe_permute(x, experts, out, offsets, inverse); });
}

// ---------------------------------------------------------------------------------- adding up

void moe_unpermute(const TensorView& y, const TensorView& inverse, const TensorView& weights,
                   const TensorView& out, void* stream) {
  UnpermuteProblem problem;
  check_moe_unpermute(y, inverse, weights, out, problem);
  run(problem, {}, stream);
}

Plan plan_moe_unpermute(const TensorView& y, const TensorView& inverse, const TensorView& weights,
                        const TensorView& out) {
  UnpermuteProblem problem;
  problem.may_be_null = true;
  check_moe_unpermute(y, inverse, weights, out, problem);
  return plan(problem);
}

std::string explain_moe_unpermute(const TensorView& y, const TensorView& inverse,
                                  const TensorView& weights, const TensorView& out) {
  UnpermuteProblem problem;
  problem.may_be_null = true;
  check_moe_unpermute(y, inverse, weights, out, problem);
  return explain(problem, /*may_split=*/false, [&] { return ExplainedCall{problem.op}; });
}

Status try_moe_unpermute(const TensorView& y, const TensorView& inverse, const TensorView& weights,
                         const TensorView& out, void* stream) noexcept {
  return status_of([&] { moe_unpermute(y, inverse, weights, out, stream); });
}

Status try_plan_moe_unpermute(const TensorView& y, const TensorView& inverse,
                              const TensorView& weights, const TensorView& out,
                              std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_moe_unpermute(y, inverse, weights, out); });
}

}  // namespace kiln
