// The public entries of kiln/varlen.h that plan attention.
#include "jit/api/call.h"
#include "jit/api/status.h"
#include "jit/attention/plan.h"
#include "kiln/varlen.h"

namespace kiln {
namespace {

// A call's launches may need no plan, which is known once they are resolved.
template <class Options>
void run_plan(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& plan,
              const Options& options, void* stream) {
  PlanProblem problem;
  check_plan(q, k, v, plan, options, problem);
  if (problem.empty()) return;
  runtime::Device& device = device_of(problem.device_ordinal);
  resolve(problem, device, options.attention.workspace.allocate != nullptr);
  if (problem.words() == 0) return;
  if (is_emulated(problem.device_ordinal)) [[unlikely]] {
    return emulate(problem, flops_of(problem), device, {});
  }
  run_recipe(problem.recipe, problem.texts, device, {}, stream);
}

template <class Options>
TensorView plan_output(const TensorView& q, const TensorView& k, const TensorView& v,
                       const Options& options) {
  PlanProblem problem;
  problem.may_be_null = true;
  check_plan(q, k, v, TensorView{}, options, problem);
  TensorView plan = contiguous_view(nullptr, DType::i32, q.device_ordinal, most_words(problem));
  plan.device_type = q.device_type;
  return plan;
}

template <class Options>
std::string explain_plan(const TensorView& q, const TensorView& k, const TensorView& v,
                         const TensorView& plan, const Options& options) {
  PlanProblem problem;
  problem.may_be_null = true;
  check_plan(q, k, v, plan, options, problem);
  if (problem.empty()) return explain_nothing(problem.op);
  runtime::Device& device = device_of(problem.device_ordinal);
  resolve(problem, device, /*may_split=*/true);
  if (problem.words() == 0) return explain_nothing(problem.op);
  return explain_recipe(ExplainedCall{problem.op}, problem.recipe, problem.texts, device);
}

}  // namespace

void plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                    const TensorView& plan, const VarlenOptions& options, void* stream) {
  run_plan(q, k, v, plan, options, stream);
}

void plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                    const TensorView& plan, const KvCacheOptions& options, void* stream) {
  run_plan(q, k, v, plan, options, stream);
}

TensorView plan_attention_output(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const VarlenOptions& options) {
  return plan_output(q, k, v, options);
}

TensorView plan_attention_output(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const KvCacheOptions& options) {
  return plan_output(q, k, v, options);
}

std::string explain_plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                   const TensorView& plan, const VarlenOptions& options) {
  return explain_plan(q, k, v, plan, options);
}

std::string explain_plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                   const TensorView& plan, const KvCacheOptions& options) {
  return explain_plan(q, k, v, plan, options);
}

Status try_plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& plan, const VarlenOptions& options,
                          void* stream) noexcept {
  return status_of([&] { plan_attention(q, k, v, plan, options, stream); });
}

Status try_plan_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& plan, const KvCacheOptions& options,
                          void* stream) noexcept {
  return status_of([&] { plan_attention(q, k, v, plan, options, stream); });
}

}  // namespace kiln
