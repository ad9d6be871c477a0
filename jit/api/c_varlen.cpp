// The attention of kiln/c.h over sequences that have lengths of their own.
#include "jit/api/c_call.h"
#include "kiln/c_serving.h"
#include "kiln/varlen.h"

namespace kiln {
namespace {

constexpr const char* kVarlen = "flash_attention_varlen";
constexpr const char* kKvCache = "flash_attention_with_kvcache";

struct SequenceViews {
  TensorView q, k, v, out, lse;
};
SequenceViews varlen_views(const kiln_tensor* q, const kiln_tensor* k, const kiln_tensor* v,
                           const kiln_tensor* out, const kiln_tensor* lse) {
  return {view_of(kVarlen, "q", q), view_of(kVarlen, "k", k), view_of(kVarlen, "v", v),
          view_of(kVarlen, "out", out), view_of(kVarlen, "lse", lse)};
}
SequenceViews kvcache_views(const kiln_tensor* q, const kiln_tensor* k_cache,
                            const kiln_tensor* v_cache, const kiln_tensor* out,
                            const kiln_tensor* lse) {
  return {view_of(kKvCache, "q", q), view_of(kKvCache, "k_cache", k_cache),
          view_of(kKvCache, "v_cache", v_cache), view_of(kKvCache, "out", out),
          view_of(kKvCache, "lse", lse)};
}

// Options is VarlenOptions or KvCacheOptions.
template <class Options>
void set_sequence_options(const char* op, const kiln_sequence_options* given, Options& options) {
  if (given == nullptr) return;
  const auto c = copy_of(given, "kiln_sequence_options");
  options.kv_indptr = view_of(op, "kv_indptr", c.kv_indptr);
  options.kv_indices = view_of(op, "kv_indices", c.kv_indices);
  options.causal_each = view_of(op, "causal_each", c.causal_each);
  options.tree_mask = view_of(op, "tree_mask", c.tree_mask);
  options.plan = view_of(op, "plan", c.plan);
  const auto one_or = [](std::int64_t number) { return number == 0 ? 1 : number; };
  options.context = {one_or(c.cp_world), c.cp_rank, one_or(c.cp_interleave),
                     view_of(op, "cp_seqused_k_total", c.cp_seqused_k_total)};
}

void set_cache_options(const kiln_cache_options* given, KvCacheOptions& options) {
  if (given == nullptr) return;
  const auto c = copy_of(given, "kiln_cache_options");
  check_reserved("kiln_cache_options", c.reserved);
  const auto view = [](const char* name, const kiln_tensor* tensor) {
    return view_of(kKvCache, name, tensor);
  };
  options.cache_batch_idx = view("cache_batch_idx", c.cache_batch_idx);
  options.cache_leftpad = view("cache_leftpad", c.cache_leftpad);
  options.k_new = view("k_new", c.k_new), options.v_new = view("v_new", c.v_new);
  options.rotary_cos = view("rotary_cos", c.rotary_cos);
  options.rotary_sin = view("rotary_sin", c.rotary_sin);
  options.rotary_interleaved = c.rotary_halves == 0;
}

template <class Options>
void read_scales(const kiln_cache_scales* given, const char* op, Options& options) {
  if (given == nullptr) return;
  const auto c = copy_of(given, "kiln_cache_scales");
  options.attention.q_scale = view_of(op, "q_scale", c.q_scale);
  options.attention.k_scale = view_of(op, "k_scale", c.k_scale);
  options.attention.v_scale = view_of(op, "v_scale", c.v_scale);
  options.out_scale = view_of(op, "out_scale", c.out_scale);
}

// Options are kiln_varlen_options or kiln_kvcache_options.
template <class Options>
kiln_status plan_attention_c(const kiln_tensor* q, const kiln_tensor* k, const kiln_tensor* v,
                             const kiln_tensor* plan, std::int64_t* words, const Options* options,
                             void* stream) {
  return run_c([&] {
    const auto view = [](const char* name, const kiln_tensor* tensor) {
      return view_of("plan_attention", name, tensor);
    };
    const TensorView of_q = view("q", q), of_k = view("k", k), of_v = view("v", v);
    const auto given = options_of(options);
    if (words != nullptr) *words = plan_attention_output(of_q, of_k, of_v, given).shape[0];
    if (plan != nullptr) plan_attention(of_q, of_k, of_v, view("plan", plan), given, stream);
  });
}

}  // namespace

VarlenOptions options_of(const kiln_varlen_options* given) {
  VarlenOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_varlen_options");
  options.cu_seqlens_q = view_of(kVarlen, "cu_seqlens_q", c.cu_seqlens_q);
  options.cu_seqlens_k = view_of(kVarlen, "cu_seqlens_k", c.cu_seqlens_k);
  options.seqused_k = view_of(kVarlen, "seqused_k", c.seqused_k);
  options.block_table = view_of(kVarlen, "block_table", c.block_table);
  options.max_seqlen_q = c.max_seqlen_q;
  options.max_seqlen_k = c.max_seqlen_k;
  options.num_splits = c.num_splits;
  options.attention = options_of(c.attention, kVarlen);
  read_scales(c.scales, kVarlen, options);
  set_sequence_options(kVarlen, c.sequences, options);
  return options;
}

KvCacheOptions options_of(const kiln_kvcache_options* given) {
  KvCacheOptions options;
  if (given == nullptr) return options;
  const auto c = copy_of(given, "kiln_kvcache_options");
  options.cache_seqlens = view_of(kKvCache, "cache_seqlens", c.cache_seqlens);
  options.block_table = view_of(kKvCache, "block_table", c.block_table);
  options.num_splits = c.num_splits;
  options.attention = options_of(c.attention, kKvCache);
  read_scales(c.scales, kKvCache, options);
  set_sequence_options(kKvCache, c.sequences, options);
  set_cache_options(c.cache, options);
  return options;
}

}  // namespace kiln

extern "C" {

kiln_status kiln_flash_attention_varlen(const kiln_tensor* q, const kiln_tensor* k,
                                        const kiln_tensor* v, const kiln_tensor* out,
                                        const kiln_tensor* lse, const kiln_varlen_options* options,
                                        void* stream) {
  return kiln::run_c([&] {
    const auto views = kiln::varlen_views(q, k, v, out, lse);
    kiln::flash_attention_varlen(views.q, views.k, views.v, views.out, views.lse,
                                 kiln::options_of(options), stream);
  });
}

kiln_status kiln_flash_attention_with_kvcache(const kiln_tensor* q, const kiln_tensor* k_cache,
                                              const kiln_tensor* v_cache, const kiln_tensor* out,
                                              const kiln_tensor* lse,
                                              const kiln_kvcache_options* options, void* stream) {
  return kiln::run_c([&] {
    const auto views = kiln::kvcache_views(q, k_cache, v_cache, out, lse);
    kiln::flash_attention_with_kvcache(views.q, views.k, views.v, views.out, views.lse,
                                       kiln::options_of(options), stream);
  });
}

kiln_status kiln_plan_attention_varlen(const kiln_tensor* q, const kiln_tensor* k,
                                       const kiln_tensor* v, const kiln_tensor* plan,
                                       int64_t* words, const kiln_varlen_options* options,
                                       void* stream) {
  return kiln::plan_attention_c(q, k, v, plan, words, options, stream);
}

kiln_status kiln_plan_attention_with_kvcache(const kiln_tensor* q, const kiln_tensor* k_cache,
                                             const kiln_tensor* v_cache, const kiln_tensor* plan,
                                             int64_t* words, const kiln_kvcache_options* options,
                                             void* stream) {
  return kiln::plan_attention_c(q, k_cache, v_cache, plan, words, options, stream);
}

kiln_status kiln_plan_flash_attention_varlen(const kiln_tensor* q, const kiln_tensor* k,
                                             const kiln_tensor* v, const kiln_tensor* out,
                                             const kiln_tensor* lse,
                                             const kiln_varlen_options* options, kiln_plan** plan) {
  return kiln::create("kiln_plan_flash_attention_varlen", "plan", plan, [&] {
    const auto views = kiln::varlen_views(q, k, v, out, lse);
    return kiln::plan_flash_attention_varlen(views.q, views.k, views.v, views.out, views.lse,
                                             kiln::options_of(options));
  });
}

kiln_status kiln_plan_flash_attention_with_kvcache(const kiln_tensor* q, const kiln_tensor* k_cache,
                                                   const kiln_tensor* v_cache,
                                                   const kiln_tensor* out, const kiln_tensor* lse,
                                                   const kiln_kvcache_options* options,
                                                   kiln_plan** plan) {
  return kiln::create("kiln_plan_flash_attention_with_kvcache", "plan", plan, [&] {
    const auto views = kiln::kvcache_views(q, k_cache, v_cache, out, lse);
    return kiln::plan_flash_attention_with_kvcache(views.q, views.k, views.v, views.out, views.lse,
                                                   kiln::options_of(options));
  });
}

}  // extern "C"
