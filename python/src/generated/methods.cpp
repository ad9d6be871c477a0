// Written by scripts/signatures.py from python/operations.pyi: the C entries under their names,
// each with its signature and manual.
#include "python/src/entries.h"

#include "python/src/generated/flash_attention.h"
#include "python/src/generated/flash_attention_varlen.h"
#include "python/src/generated/flash_attention_with_kvcache.h"
#include "python/src/generated/plan_attention.h"
#include "python/src/generated/scaled_dot_product_attention.h"
#include "python/src/generated/gemm.h"
#include "python/src/generated/rms_norm.h"
#include "python/src/generated/layer_norm.h"
#include "python/src/generated/merge_states.h"
#include "python/src/generated/append_kv.h"
#include "python/src/generated/quantize.h"
#include "python/src/generated/moe_route.h"
#include "python/src/generated/moe_permute.h"
#include "python/src/generated/moe_unpermute.h"

namespace kiln::python {
namespace {

constexpr const char* kFlashAttentionDoc =
    "flash_attention(q, k, v, *, causal=False, top_left=False, window=(-1, -1), "
    "softcap=0.0, scale=None, attn_mask=None, sinks=None, alibi_slopes=None, "
    "variant=None, q_scale=None, k_scale=None, v_scale=None, layout=\"bshd\", out=None, "
    "lse=None, return_lse=False)"
    "\n--\n\n"
#include "python/src/docs/flash_attention.inc"
    ;

constexpr const char* kExplainFlashAttentionDoc =
    "explain_flash_attention(q, k, v, *, causal=False, top_left=False, window=(-1, -1), "
    "softcap=0.0, scale=None, attn_mask=None, sinks=None, alibi_slopes=None, "
    "variant=None, q_scale=None, k_scale=None, v_scale=None, layout=\"bshd\", out=None, "
    "lse=None, return_lse=False)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kFlashAttentionVarlenDoc =
    "flash_attention_varlen(q, k, v, *, cu_seqlens_q, max_seqlen_q, max_seqlen_k, "
    "cu_seqlens_k=None, seqused_k=None, block_table=None, kv_indptr=None, "
    "kv_indices=None, causal=False, window=(-1, -1), tree_mask=None, softcap=0.0, "
    "scale=None, sinks=None, alibi_slopes=None, variant=None, q_scale=None, k_scale=None, "
    "v_scale=None, cp_world=1, cp_rank=0, cp_interleave=1, cp_seqused_k_total=None, "
    "out_scale=None, num_splits=0, plan=None, out=None, lse=None, return_lse=False)"
    "\n--\n\n"
#include "python/src/docs/flash_attention_varlen.inc"
    ;

constexpr const char* kExplainFlashAttentionVarlenDoc =
    "explain_flash_attention_varlen(q, k, v, *, cu_seqlens_q, max_seqlen_q, max_seqlen_k, "
    "cu_seqlens_k=None, seqused_k=None, block_table=None, kv_indptr=None, "
    "kv_indices=None, causal=False, window=(-1, -1), tree_mask=None, softcap=0.0, "
    "scale=None, sinks=None, alibi_slopes=None, variant=None, q_scale=None, k_scale=None, "
    "v_scale=None, cp_world=1, cp_rank=0, cp_interleave=1, cp_seqused_k_total=None, "
    "out_scale=None, num_splits=0, plan=None, out=None, lse=None, return_lse=False)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kFlashAttentionWithKvcacheDoc =
    "flash_attention_with_kvcache(q, k_cache, v_cache, *, cache_seqlens, "
    "block_table=None, kv_indptr=None, kv_indices=None, cache_batch_idx=None, "
    "cache_leftpad=None, k_new=None, v_new=None, rotary_cos=None, rotary_sin=None, "
    "rotary_interleaved=True, causal=False, window=(-1, -1), tree_mask=None, softcap=0.0, "
    "scale=None, sinks=None, alibi_slopes=None, variant=None, q_scale=None, k_scale=None, "
    "v_scale=None, cp_world=1, cp_rank=0, cp_interleave=1, cp_seqused_k_total=None, "
    "out_scale=None, num_splits=0, plan=None, out=None, lse=None, return_lse=False)"
    "\n--\n\n"
#include "python/src/docs/flash_attention_with_kvcache.inc"
    ;

constexpr const char* kExplainFlashAttentionWithKvcacheDoc =
    "explain_flash_attention_with_kvcache(q, k_cache, v_cache, *, cache_seqlens, "
    "block_table=None, kv_indptr=None, kv_indices=None, cache_batch_idx=None, "
    "cache_leftpad=None, k_new=None, v_new=None, rotary_cos=None, rotary_sin=None, "
    "rotary_interleaved=True, causal=False, window=(-1, -1), tree_mask=None, softcap=0.0, "
    "scale=None, sinks=None, alibi_slopes=None, variant=None, q_scale=None, k_scale=None, "
    "v_scale=None, cp_world=1, cp_rank=0, cp_interleave=1, cp_seqused_k_total=None, "
    "out_scale=None, num_splits=0, plan=None, out=None, lse=None, return_lse=False)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kPlanAttentionDoc =
    "plan_attention(q, k, v, *, cu_seqlens_q=None, max_seqlen_q=0, max_seqlen_k=0, "
    "cu_seqlens_k=None, seqused_k=None, cache_seqlens=None, block_table=None, "
    "kv_indptr=None, kv_indices=None, cache_batch_idx=None, cache_leftpad=None, "
    "causal=False, window=(-1, -1), tree_mask=None, softcap=0.0, alibi_slopes=None, "
    "variant=None, cp_world=1, cp_rank=0, cp_interleave=1, cp_seqused_k_total=None, "
    "out_scale=None, num_splits=0, plan=None)"
    "\n--\n\n"
#include "python/src/docs/plan_attention.inc"
    ;

constexpr const char* kExplainPlanAttentionDoc =
    "explain_plan_attention(q, k, v, *, cu_seqlens_q=None, max_seqlen_q=0, "
    "max_seqlen_k=0, cu_seqlens_k=None, seqused_k=None, cache_seqlens=None, "
    "block_table=None, kv_indptr=None, kv_indices=None, cache_batch_idx=None, "
    "cache_leftpad=None, causal=False, window=(-1, -1), tree_mask=None, softcap=0.0, "
    "alibi_slopes=None, variant=None, cp_world=1, cp_rank=0, cp_interleave=1, "
    "cp_seqused_k_total=None, out_scale=None, num_splits=0, plan=None)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kScaledDotProductAttentionDoc =
    "scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, "
    "is_causal=False, *, scale=None, enable_gqa=False)"
    "\n--\n\n"
#include "python/src/docs/scaled_dot_product_attention.inc"
    ;

constexpr const char* kExplainScaledDotProductAttentionDoc =
    "explain_scaled_dot_product_attention(query, key, value, attn_mask=None, "
    "dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kGemmDoc =
    "gemm(a, b, *, trans_a=False, trans_b=False, bias=None, activation=None, gate=None, "
    "residual=None, scale_a=None, scale_b=None, alpha=1.0, out=None, out_dtype=None, "
    "precision=None, accumulator=\"float32\", epilogue=None, params=None, tensors=None, "
    "offsets=None, counts=None, expected_rows=0, config=None, pdl=False)"
    "\n--\n\n"
#include "python/src/docs/gemm.inc"
    ;

constexpr const char* kExplainGemmDoc =
    "explain_gemm(a, b, *, trans_a=False, trans_b=False, bias=None, activation=None, "
    "gate=None, residual=None, scale_a=None, scale_b=None, alpha=1.0, out=None, "
    "out_dtype=None, precision=None, accumulator=\"float32\", epilogue=None, params=None, "
    "tensors=None, offsets=None, counts=None, expected_rows=0, config=None, pdl=False)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kRmsNormDoc =
    "rms_norm(x, weight=None, *, eps=1e-06, weight_offset=0.0, residual=None, "
    "residual_out=None, activation=None, out=None, out_dtype=None)"
    "\n--\n\n"
#include "python/src/docs/rms_norm.inc"
    ;

constexpr const char* kExplainRmsNormDoc =
    "explain_rms_norm(x, weight=None, *, eps=1e-06, weight_offset=0.0, residual=None, "
    "residual_out=None, activation=None, out=None, out_dtype=None)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kLayerNormDoc =
    "layer_norm(x, weight=None, bias=None, *, eps=1e-05, weight_offset=0.0, "
    "residual=None, residual_out=None, activation=None, out=None, out_dtype=None)"
    "\n--\n\n"
#include "python/src/docs/layer_norm.inc"
    ;

constexpr const char* kExplainLayerNormDoc =
    "explain_layer_norm(x, weight=None, bias=None, *, eps=1e-05, weight_offset=0.0, "
    "residual=None, residual_out=None, activation=None, out=None, out_dtype=None)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kMergeStatesDoc =
    "merge_states(outs, lses, *, base=\"e\", layout=\"ht\", sinks=None, out=None, lse=None, "
    "return_lse=False)"
    "\n--\n\n"
#include "python/src/docs/merge_states.inc"
    ;

constexpr const char* kExplainMergeStatesDoc =
    "explain_merge_states(outs, lses, *, base=\"e\", layout=\"ht\", sinks=None, out=None, "
    "lse=None, return_lse=False)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kAppendKvDoc =
    "append_kv(key, value, k_cache, v_cache, slot_mapping, *, k_scale=None, v_scale=None, "
    "query=None, query_out=None, q_weight=None, k_weight=None, eps=1e-06, positions=None, "
    "cos=None, sin=None, interleaved=False)"
    "\n--\n\n"
#include "python/src/docs/append_kv.inc"
    ;

constexpr const char* kExplainAppendKvDoc =
    "explain_append_kv(key, value, k_cache, v_cache, slot_mapping, *, k_scale=None, "
    "v_scale=None, query=None, query_out=None, q_weight=None, k_weight=None, eps=1e-06, "
    "positions=None, cos=None, sin=None, interleaved=False)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kQuantizeDoc =
    "quantize(x, *, group=128, activation=None, scale_power_of_two=False, "
    "scale_layout=\"row\", counts=None, out=None, scale_out=None, out_dtype=None)"
    "\n--\n\n"
#include "python/src/docs/quantize.inc"
    ;

constexpr const char* kExplainQuantizeDoc =
    "explain_quantize(x, *, group=128, activation=None, scale_power_of_two=False, "
    "scale_layout=\"row\", counts=None, out=None, scale_out=None, out_dtype=None)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kMoeRouteDoc =
    "moe_route(logits, *, top_k, scoring=\"softmax\", renormalize=True, bias=None, "
    "groups=1, top_groups=1, scale=1.0, weights=None, experts=None)"
    "\n--\n\n"
#include "python/src/docs/moe_route.inc"
    ;

constexpr const char* kExplainMoeRouteDoc =
    "explain_moe_route(logits, *, top_k, scoring=\"softmax\", renormalize=True, bias=None, "
    "groups=1, top_groups=1, scale=1.0, weights=None, experts=None)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kMoePermuteDoc =
    "moe_permute(x, experts, *, num_experts, out=None, offsets=None, inverse=None)"
    "\n--\n\n"
#include "python/src/docs/moe_permute.inc"
    ;

constexpr const char* kExplainMoePermuteDoc =
    "explain_moe_permute(x, experts, *, num_experts, out=None, offsets=None, "
    "inverse=None)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr const char* kMoeUnpermuteDoc =
    "moe_unpermute(y, inverse, weights=None, *, out=None, out_dtype=None)"
    "\n--\n\n"
#include "python/src/docs/moe_unpermute.inc"
    ;

constexpr const char* kExplainMoeUnpermuteDoc =
    "explain_moe_unpermute(y, inverse, weights=None, *, out=None, out_dtype=None)"
    "\n--\n\n"
#include "python/src/docs/explain.inc"
    ;

constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;

template <class Function>
PyCFunction as_method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"flash_attention", as_method(&flash_attention_entry), kFlags,
     kFlashAttentionDoc},
    {"explain_flash_attention", as_method(&explain_flash_attention_entry), kFlags,
     kExplainFlashAttentionDoc},
    {"flash_attention_varlen", as_method(&flash_attention_varlen_entry), kFlags,
     kFlashAttentionVarlenDoc},
    {"explain_flash_attention_varlen", as_method(&explain_flash_attention_varlen_entry), kFlags,
     kExplainFlashAttentionVarlenDoc},
    {"flash_attention_with_kvcache", as_method(&flash_attention_with_kvcache_entry), kFlags,
     kFlashAttentionWithKvcacheDoc},
    {"explain_flash_attention_with_kvcache", as_method(&explain_flash_attention_with_kvcache_entry), kFlags,
     kExplainFlashAttentionWithKvcacheDoc},
    {"plan_attention", as_method(&plan_attention_entry), kFlags,
     kPlanAttentionDoc},
    {"explain_plan_attention", as_method(&explain_plan_attention_entry), kFlags,
     kExplainPlanAttentionDoc},
    {"scaled_dot_product_attention", as_method(&scaled_dot_product_attention_entry), kFlags,
     kScaledDotProductAttentionDoc},
    {"explain_scaled_dot_product_attention", as_method(&explain_scaled_dot_product_attention_entry), kFlags,
     kExplainScaledDotProductAttentionDoc},
    {"gemm", as_method(&gemm_entry), kFlags,
     kGemmDoc},
    {"explain_gemm", as_method(&explain_gemm_entry), kFlags,
     kExplainGemmDoc},
    {"rms_norm", as_method(&rms_norm_entry), kFlags,
     kRmsNormDoc},
    {"explain_rms_norm", as_method(&explain_rms_norm_entry), kFlags,
     kExplainRmsNormDoc},
    {"layer_norm", as_method(&layer_norm_entry), kFlags,
     kLayerNormDoc},
    {"explain_layer_norm", as_method(&explain_layer_norm_entry), kFlags,
     kExplainLayerNormDoc},
    {"merge_states", as_method(&merge_states_entry), kFlags,
     kMergeStatesDoc},
    {"explain_merge_states", as_method(&explain_merge_states_entry), kFlags,
     kExplainMergeStatesDoc},
    {"append_kv", as_method(&append_kv_entry), kFlags,
     kAppendKvDoc},
    {"explain_append_kv", as_method(&explain_append_kv_entry), kFlags,
     kExplainAppendKvDoc},
    {"quantize", as_method(&quantize_entry), kFlags,
     kQuantizeDoc},
    {"explain_quantize", as_method(&explain_quantize_entry), kFlags,
     kExplainQuantizeDoc},
    {"moe_route", as_method(&moe_route_entry), kFlags,
     kMoeRouteDoc},
    {"explain_moe_route", as_method(&explain_moe_route_entry), kFlags,
     kExplainMoeRouteDoc},
    {"moe_permute", as_method(&moe_permute_entry), kFlags,
     kMoePermuteDoc},
    {"explain_moe_permute", as_method(&explain_moe_permute_entry), kFlags,
     kExplainMoePermuteDoc},
    {"moe_unpermute", as_method(&moe_unpermute_entry), kFlags,
     kMoeUnpermuteDoc},
    {"explain_moe_unpermute", as_method(&explain_moe_unpermute_entry), kFlags,
     kExplainMoeUnpermuteDoc},
};

}  // namespace

std::span<PyMethodDef> operation_methods() { return methods; }

}  // namespace kiln::python
