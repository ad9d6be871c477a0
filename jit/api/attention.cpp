// The public entries of kiln/attention.h.
#include "kiln/attention.h"

#include <optional>

#include "jit/api/call.h"
#include "jit/api/status.h"
#include "jit/attention/problem.h"
#include "jit/attention/sdpa.h"
#include "jit/attention/tuning.h"
#include "jit/attention/varlen.h"
#include "jit/op/checks.h"

namespace kiln {
namespace {

ExplainedCall explained(const AttentionProblem& problem) {
  const AttentionTraits& traits = problem.traits;
  if (traits.storage != Storage::dense && !traits.byte_queries) {
    return {problem.op, "",
            "few queries of many keys, of heads that share KV heads: computed as sequences of one "
            "length"};
  }
  const TunedAttention* entry = problem.measured;
  if (entry == nullptr) return {problem.op};
  return {problem.op, "",
          tuned_tile_note("len_q = " + std::to_string(entry->len_q) +
                          ", len_kv = " + std::to_string(entry->len_kv))};
}

void check(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out,
           const TensorView& lse, const AttentionOptions& options,
           std::optional<RowsFirst>& of_bytes, AttentionProblem& problem) {
  if (is_f8(q.dtype)) {
    check_byte_attention(q, k, v, out, lse, options, of_bytes.emplace(), problem);
  } else {
    check_attention(q, k, v, out, lse, options, problem);
  }
}

// Finds the kernels of all slices, so that a call that lacks one of them writes nothing.
void find_kernels_of(SdpaCall call, void* stream) {
  for (int i = 0; i < call.slices; ++i) {
    AttentionProblem problem(kSdpaNames);
    check_attention(call.query, call.key, call.value, call.out, {}, call.options, problem);
    if (problem.empty()) return;
    runtime::Device& device = device_of(problem.device_ordinal);
    resolve(problem, device, call.options.workspace.allocate != nullptr);
    const bool emulates = is_emulated(problem.device_ordinal);
    if (emulates) admit_emulation(problem.op, flops_of(problem), problem.recipe);
    find_kernels(problem.recipe, problem.texts, device, emulates ? nullptr : &stream);
    call.advance();
  }
}

}  // namespace

void flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& out, const TensorView& lse, const AttentionOptions& options,
                     void* stream) {
  std::optional<RowsFirst> of_bytes;
  AttentionProblem problem;
  check(q, k, v, out, lse, options, of_bytes, problem);
  run(problem, options.workspace, stream);
}

void scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                  const TensorView& value, const TensorView& attn_mask,
                                  const TensorView& out, const SdpaOptions& options, void* stream) {
  SdpaCall call = check_sdpa(query, key, value, attn_mask, out, options);
  if (call.slices > 1 && !call.are_alike()) find_kernels_of(call, stream);
  for (int i = 0; i < call.slices; ++i) {
    AttentionProblem problem(kSdpaNames);
    check_attention(call.query, call.key, call.value, call.out, {}, call.options, problem);
    run(problem, call.options.workspace, stream);
    call.advance();
  }
}

Plan plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options) {
  std::optional<RowsFirst> of_bytes;
  AttentionProblem problem;
  problem.may_be_null = true;
  check(q, k, v, out, lse, options, of_bytes, problem);
  return plan(problem);
}

std::string explain_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                    const TensorView& out, const TensorView& lse,
                                    const AttentionOptions& options) {
  std::optional<RowsFirst> of_bytes;
  AttentionProblem problem;
  problem.may_be_null = true;
  check(q, k, v, out, lse, options, of_bytes, problem);
  return explain(problem, /*may_split=*/true, [&] { return explained(problem); });
}

std::string explain_scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                                 const TensorView& value,
                                                 const TensorView& attn_mask, const TensorView& out,
                                                 const SdpaOptions& options) {
  const SdpaCall call = check_sdpa(query, key, value, attn_mask, out, options);
  AttentionProblem problem(kSdpaNames);
  problem.may_be_null = true;
  check_attention(call.query, call.key, call.value, call.out, {}, call.options, problem);
  return explain(problem, /*may_split=*/call.slices == 1, [&] { return explained(problem); });
}

Status try_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                           const TensorView& out, const TensorView& lse,
                           const AttentionOptions& options, void* stream) noexcept {
  return status_of([&] { flash_attention(q, k, v, out, lse, options, stream); });
}

Status try_scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                        const TensorView& value, const TensorView& attn_mask,
                                        const TensorView& out, const SdpaOptions& options,
                                        void* stream) noexcept {
  return status_of(
      [&] { scaled_dot_product_attention(query, key, value, attn_mask, out, options, stream); });
}

Status try_plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                const TensorView& out, const TensorView& lse,
                                const AttentionOptions& options,
                                std::optional<Plan>& plan) noexcept {
  plan.reset();
  return status_of([&] { plan = plan_flash_attention(q, k, v, out, lse, options); });
}

}  // namespace kiln
