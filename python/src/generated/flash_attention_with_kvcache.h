// Written by scripts/signatures.py from python/operations.pyi: the parameters of
// jit.flash_attention_with_kvcache, and its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct FlashAttentionWithKvcacheSignature {
  static constexpr const char* kOp = "flash_attention_with_kvcache";
  static constexpr int kPositional = 3;  // the rest is keyword-only
  static constexpr int kRequired = 4;
  static constexpr int kRequiredTensors = 4;

  enum Slot {
    kQ, kKCache, kVCache, kCacheSeqlens, kBlockTable, kKvIndptr, kKvIndices, kCacheBatchIdx,
    kCacheLeftpad, kKNew, kVNew, kRotaryCos, kRotarySin, kRotaryInterleaved, kCausal, kWindow,
    kTreeMask, kSoftcap, kScale, kSinks, kAlibiSlopes, kVariant, kQScale, kKScale, kVScale,
    kCpWorld, kCpRank, kCpInterleave, kCpSequsedKTotal, kOutScale, kNumSplits, kPlan, kOut, kLse,
    kReturnLse, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "q", "k_cache", "v_cache", "cache_seqlens", "block_table", "kv_indptr", "kv_indices",
      "cache_batch_idx", "cache_leftpad", "k_new", "v_new", "rotary_cos", "rotary_sin",
      "rotary_interleaved", "causal", "window", "tree_mask", "softcap", "scale", "sinks",
      "alibi_slopes", "variant", "q_scale", "k_scale", "v_scale", "cp_world", "cp_rank",
      "cp_interleave", "cp_seqused_k_total", "out_scale", "num_splits", "plan", "out", "lse",
      "return_lse"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 25> all;

    Argument& q() { return all[0]; }
    const Argument& q() const { return all[0]; }
    Argument& k_cache() { return all[1]; }
    const Argument& k_cache() const { return all[1]; }
    Argument& v_cache() { return all[2]; }
    const Argument& v_cache() const { return all[2]; }
    Argument& cache_seqlens() { return all[3]; }
    const Argument& cache_seqlens() const { return all[3]; }
    Argument& block_table() { return all[4]; }
    const Argument& block_table() const { return all[4]; }
    Argument& kv_indptr() { return all[5]; }
    const Argument& kv_indptr() const { return all[5]; }
    Argument& kv_indices() { return all[6]; }
    const Argument& kv_indices() const { return all[6]; }
    Argument& cache_batch_idx() { return all[7]; }
    const Argument& cache_batch_idx() const { return all[7]; }
    Argument& cache_leftpad() { return all[8]; }
    const Argument& cache_leftpad() const { return all[8]; }
    Argument& k_new() { return all[9]; }
    const Argument& k_new() const { return all[9]; }
    Argument& v_new() { return all[10]; }
    const Argument& v_new() const { return all[10]; }
    Argument& rotary_cos() { return all[11]; }
    const Argument& rotary_cos() const { return all[11]; }
    Argument& rotary_sin() { return all[12]; }
    const Argument& rotary_sin() const { return all[12]; }
    Argument& causal() { return all[13]; }
    const Argument& causal() const { return all[13]; }
    Argument& tree_mask() { return all[14]; }
    const Argument& tree_mask() const { return all[14]; }
    Argument& sinks() { return all[15]; }
    const Argument& sinks() const { return all[15]; }
    Argument& alibi_slopes() { return all[16]; }
    const Argument& alibi_slopes() const { return all[16]; }
    Argument& q_scale() { return all[17]; }
    const Argument& q_scale() const { return all[17]; }
    Argument& k_scale() { return all[18]; }
    const Argument& k_scale() const { return all[18]; }
    Argument& v_scale() { return all[19]; }
    const Argument& v_scale() const { return all[19]; }
    Argument& cp_seqused_k_total() { return all[20]; }
    const Argument& cp_seqused_k_total() const { return all[20]; }
    Argument& out_scale() { return all[21]; }
    const Argument& out_scale() const { return all[21]; }
    Argument& plan() { return all[22]; }
    const Argument& plan() const { return all[22]; }
    Argument& out() { return all[23]; }
    const Argument& out() const { return all[23]; }
    Argument& lse() { return all[24]; }
    const Argument& lse() const { return all[24]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"q", slots[kQ]},
        {"k_cache", slots[kKCache]},
        {"v_cache", slots[kVCache]},
        {"cache_seqlens", slots[kCacheSeqlens]},
        {"block_table", slots[kBlockTable]},
        {"kv_indptr", slots[kKvIndptr]},
        {"kv_indices", slots[kKvIndices]},
        {"cache_batch_idx", slots[kCacheBatchIdx]},
        {"cache_leftpad", slots[kCacheLeftpad]},
        {"k_new", slots[kKNew]},
        {"v_new", slots[kVNew]},
        {"rotary_cos", slots[kRotaryCos]},
        {"rotary_sin", slots[kRotarySin]},
        {"causal", slots[kCausal]},
        {"tree_mask", slots[kTreeMask]},
        {"sinks", slots[kSinks]},
        {"alibi_slopes", slots[kAlibiSlopes]},
        {"q_scale", slots[kQScale]},
        {"k_scale", slots[kKScale]},
        {"v_scale", slots[kVScale]},
        {"cp_seqused_k_total", slots[kCpSequsedKTotal]},
        {"out_scale", slots[kOutScale]},
        {"plan", slots[kPlan]},
        {"out", slots[kOut], true},
        {"lse", slots[kLse], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kSoftcap, options.softcap);
    visit(kScale, options.scale);
  }
};

// In the file of this operation.
PyObject* flash_attention_with_kvcache_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_flash_attention_with_kvcache_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
