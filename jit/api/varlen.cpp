#include "kiln/varlen.h"

#include "jit/api/call.h"
#include "jit/api/kvcache_call.h"
#include "jit/api/status.h"
#include "jit/attention/varlen.h"

namespace kiln {
namespace {

// Apart, because two argument blocks take kilobytes of stack, which most calls need not have.
[[gnu::noinline]] void append_and_attend(const TensorView& q, const TensorView& k_cache,
                                         const TensorView& v_cache, const TensorView& out,
                                         const TensorView& lse, const KvCacheOptions& options,
                                         void* stream) {
  KvCacheCall call;
  check_kvcache_call(q, k_cache, v_cache, out, lse, options, call);
  run(call, options.attention.workspace, stream);
}

}  // namespace

void flash_attention_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                            const TensorView& out, const TensorView& lse,
                            const VarlenOptions& options, void* stream) {
  AttentionProblem problem(kVarlenNames);
  check_varlen(q, k, v, out, lse, options, problem);
  run(problem, options.attention.workspace, stream);
}

void flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                  const TensorView& v_cache, const TensorView& out,
                                  const TensorView& lse, const KvCacheOptions& options,
                                  void* stream) {
  if (options.k_new.given()) [[unlikely]]
    return append_and_attend(q, k_cache, v_cache, out, lse, options, stream);
  AttentionProblem problem(kKvCacheNames);
  check_kvcache(q, k_cache, v_cache, out, lse, options, problem);
  run(problem, options.attention.workspace, stream);
}

Plan plan_flash_attention_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                                 const TensorView& out, const TensorView& lse,
                                 const VarlenOptions& options) {
  AttentionProblem problem(kVarlenNames);
  problem.may_be_null = true;
  check_varlen(q, k, v, out, lse, options, problem);
  return plan(problem);
}

Plan plan_flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                       const TensorView& v_cache, const TensorView& out,
                                       const TensorView& lse, const KvCacheOptions& options) {
  if (options.k_new.given()) {
    KvCacheCall call;
    call.may_be_null = true;
    check_kvcache_call(q, k_cache, v_cache, out, lse, options, call);
    return plan(call);
  }
  AttentionProblem problem(kKvCacheNames);
  problem.may_be_null = true;
  check_kvcache(q, k_cache, v_cache, out, lse, options, problem);
  return plan(problem);
}

std::string explain_flash_attention_varlen(const TensorView& q, const TensorView& k,
                                           const TensorView& v, const TensorView& out,
                                           const TensorView& lse, const VarlenOptions& options) {
  AttentionProblem problem(kVarlenNames);
  problem.may_be_null = true;
  check_varlen(q, k, v, out, lse, options, problem);
  return explain(problem, /*may_split=*/true, [&] { return ExplainedCall{problem.op}; });
}

std::string explain_flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                                 const TensorView& v_cache, const TensorView& out,
                                                 const TensorView& lse,
                                                 const KvCacheOptions& options) {
  if (options.k_new.given()) {
    KvCacheCall call;
    call.may_be_null = true;
    check_kvcache_call(q, k_cache, v_cache, out, lse, options, call);
    return explain(call, /*may_split=*/true, [&] { return ExplainedCall{call.op}; });
  }
  AttentionProblem problem(kKvCacheNames);
  problem.may_be_null = true;
  check_kvcache(q, k_cache, v_cache, out, lse, options, problem);
  return explain(problem, /*may_split=*/true, [&] { return ExplainedCall{problem.op}; });
}

Status try_flash_attention_varlen(const TensorView& q, const TensorView& k, const TensorView& v,
                                  const TensorView& out, const TensorView& lse,
                                  const VarlenOptions& options, void* stream) noexcept {
  return status_of([&] { flash_attention_varlen(q, k, v, out, lse, options, stream); });
}

Status try_flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                        const TensorView& v_cache, const TensorView& out,
                                        const TensorView& lse, const KvCacheOptions& options,
                                        void* stream) noexcept {
  return status_of(
      [&] { flash_attention_with_kvcache(q, k_cache, v_cache, out, lse, options, stream); });
}

Status try_plan_flash_attention_varlen(const TensorView& q, const TensorView& k,
                                       const TensorView& v, const TensorView& out,
                                       const TensorView& lse, const VarlenOptions& options,
                                       std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_flash_attention_varlen(q, k, v, out, lse, options); });
}

Status try_plan_flash_attention_with_kvcache(const TensorView& q, const TensorView& k_cache,
                                             const TensorView& v_cache, const TensorView& out,
                                             const TensorView& lse, const KvCacheOptions& options,
                                             std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of(
      [&] { plan = plan_flash_attention_with_kvcache(q, k_cache, v_cache, out, lse, options); });
}

}  // namespace kiln
