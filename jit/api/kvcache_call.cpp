#include "jit/api/kvcache_call.h"

#include <array>
#include <string_view>

#include "jit/append_kv/sequences.h"

namespace kiln {
namespace {

// The number of the append launch's tensor among those of the call; adds it if it is new.
std::size_t number_in(CallTensors& tensors, const CallTensor& of_append) {
  const auto all = tensors.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::string_view(all[i].name) == of_append.name) return i;
  }
  tensors.add(of_append);
  return all.size();
}

// The tensors of the call are attention's, of which the caches are written, and then the others.
void join_tensors(KvCacheCall& call) {
  for (CallTensor tensor : call.attention.tensors.all()) {
    const std::string_view name = tensor.name;
    if (name == kKvCacheNames.k || name == kKvCacheNames.v) tensor.use = Use::written;
    call.tensors.add(tensor);
  }
  CallArguments& arguments = call.append.arguments();
  const auto appended = call.append.tensors.all();
  for (std::size_t i = 0; i < appended.size(); ++i) {
    arguments.set_tensor_number(i, number_in(call.tensors, appended[i]));
  }
}

void check_all_overlaps(const KvCacheCall& call) {
  std::array<runtime::MemorySpan, CallArguments::kMaxPointers> spans;
  const auto all = call.tensors.all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    spans[i] = CallArguments::span_of(*all[i].view, all[i].use == Use::written);
  }
  const std::span given(spans.data(), all.size());
  if (written_ranges_meet(given)) refuse_overlaps(call.op, all, given);
}

}  // namespace

void check_kvcache_call(const TensorView& q, const TensorView& k_cache, const TensorView& v_cache,
                        const TensorView& out, const TensorView& lse, const KvCacheOptions& options,
                        KvCacheCall& call) {
  call.attention.may_be_null = call.append.may_be_null = call.may_be_null;
  check_kvcache(q, k_cache, v_cache, out, lse, options, call.attention);
  call.device_ordinal = call.append.device_ordinal = call.attention.device_ordinal;
  call.texts = call.attention.texts;
  const bool rotates = options.rotary_cos.given();
  const TensorView none;
  call.rotated = out;
  call.rotated.shape[3] = q.shape[3];
  check_append_sequences({.key = options.k_new,
                          .value = options.v_new,
                          .k_cache = k_cache,
                          .v_cache = v_cache,
                          .cache_seqlens = options.cache_seqlens,
                          .block_table = options.block_table,
                          .kv_indptr = options.kv_indptr,
                          .kv_indices = options.kv_indices,
                          .cache_batch_idx = options.cache_batch_idx,
                          .cos = options.rotary_cos,
                          .sin = options.rotary_sin,
                          .query = rotates ? q : none,
                          .query_out = rotates ? call.rotated : none,
                          .interleaved = options.rotary_interleaved,
                          .queries_advance = call.attention.traits.mask != Mask::none},
                         call.append);
  join_tensors(call);
  check_all_overlaps(call);
}

void resolve(KvCacheCall& call, const runtime::Device& device, bool may_split) {
  if (!call.attention.empty()) resolve(call.attention, device, may_split);
  if (call.append.empty()) {
    call.recipe = call.attention.recipe;
    return;
  }
  resolve(call.append, device, may_split);
  call.recipe = call.append.recipe;
  if (call.attention.empty()) return;
  // In the order of launch_steps(), behind the step that appends: what copies keys reads new ones
  // too.
  for (const bool prepares : {true, false}) {
    for (const Step& step : call.attention.recipe.steps()) {
      if (step.prepares != prepares) continue;
      Step& added = call.recipe.add();
      added = step;
      added.prepares = false;
    }
  }
  call.recipe.workspace_bytes = call.attention.recipe.workspace_bytes;
}

double flops_of(const KvCacheCall& call) {
  return flops_of(call.attention) + flops_of(call.append);
}

}  // namespace kiln
