// The options of jit.plan_attention, from Python's arguments and from PyTorch's: those of the calls
// that are planned, which the rank of q tells.
#pragma once

#include <cstdint>

#include "errors.h"
#include "kiln/varlen.h"

namespace kiln::python {

// All that is no tensor.
struct PlanNumbers {
  AttentionOptions attention;
  ContextParallel context;
  std::int64_t max_seqlen_q = 0, max_seqlen_k = 0, num_splits = 0;
};

template <class Tensors, class Options>
void set_shared_options(const Tensors& tensors, const PlanNumbers& numbers, Options& options) {
  options.attention = numbers.attention;
  options.attention.alibi_slopes = tensors.alibi_slopes().view;
  options.context = numbers.context;
  options.context.seqused_k_total = tensors.cp_seqused_k_total().view;
  options.num_splits = numbers.num_splits;
  options.block_table = tensors.block_table().view;
  options.kv_indptr = tensors.kv_indptr().view;
  options.kv_indices = tensors.kv_indices().view;
  options.tree_mask = tensors.tree_mask().view;
  options.out_scale = tensors.out_scale().view;
  if constexpr (requires { tensors.causal(); }) options.causal_each = tensors.causal().view;
}

// Arguments of the other operation have no meaning here.
inline void refuse_given(const char* name, bool is_given, const char* of_these) {
  if (!is_given) return;
  throw_value({"plan_attention", name},
              std::string("must not be given for calls of ") + of_these + ", whose q this is");
}

// Calls `use` with VarlenOptions or KvCacheOptions.
template <class Tensors, class Use>
auto with_plan_options(const Tensors& tensors, const PlanNumbers& numbers, Use&& use) {
  const auto refuse = [](const char* name, const TensorView& tensor, const char* of_these) {
    refuse_given(name, tensor.given(), of_these);
  };
  if (tensors.q().view.rank == 4) {
    constexpr const char* kThese = "flash_attention_with_kvcache";
    refuse("cu_seqlens_q", tensors.cu_seqlens_q().view, kThese);
    refuse("cu_seqlens_k", tensors.cu_seqlens_k().view, kThese);
    refuse("seqused_k", tensors.seqused_k().view, kThese);
    refuse_given("max_seqlen_q", numbers.max_seqlen_q != 0, kThese);
    refuse_given("max_seqlen_k", numbers.max_seqlen_k != 0, kThese);
    KvCacheOptions options;
    set_shared_options(tensors, numbers, options);
    options.cache_seqlens = tensors.cache_seqlens().view;
    options.cache_batch_idx = tensors.cache_batch_idx().view;
    options.cache_leftpad = tensors.cache_leftpad().view;
    return use(options);
  }
  constexpr const char* kThese = "flash_attention_varlen";
  refuse("cache_seqlens", tensors.cache_seqlens().view, kThese);
  refuse("cache_batch_idx", tensors.cache_batch_idx().view, kThese);
  refuse("cache_leftpad", tensors.cache_leftpad().view, kThese);
  VarlenOptions options;
  set_shared_options(tensors, numbers, options);
  options.cu_seqlens_q = tensors.cu_seqlens_q().view;
  options.cu_seqlens_k = tensors.cu_seqlens_k().view;
  options.seqused_k = tensors.seqused_k().view;
  options.max_seqlen_q = numbers.max_seqlen_q;
  options.max_seqlen_k = numbers.max_seqlen_k;
  return use(options);
}

}  // namespace kiln::python
