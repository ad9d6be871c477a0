// Written by scripts/signatures.py from python/operations.pyi: the parameters of
// jit.plan_attention, and its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct PlanAttentionSignature {
  static constexpr const char* kOp = "plan_attention";
  static constexpr int kPositional = 3;  // the rest is keyword-only
  static constexpr int kRequired = 3;
  static constexpr int kRequiredTensors = 3;

  enum Slot {
    kQ, kK, kV, kCuSeqlensQ, kMaxSeqlenQ, kMaxSeqlenK, kCuSeqlensK, kSequsedK, kCacheSeqlens,
    kBlockTable, kKvIndptr, kKvIndices, kCacheBatchIdx, kCacheLeftpad, kCausal, kWindow, kTreeMask,
    kSoftcap, kAlibiSlopes, kVariant, kCpWorld, kCpRank, kCpInterleave, kCpSequsedKTotal, kOutScale,
    kNumSplits, kPlan, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "q", "k", "v", "cu_seqlens_q", "max_seqlen_q", "max_seqlen_k", "cu_seqlens_k", "seqused_k",
      "cache_seqlens", "block_table", "kv_indptr", "kv_indices", "cache_batch_idx", "cache_leftpad",
      "causal", "window", "tree_mask", "softcap", "alibi_slopes", "variant", "cp_world", "cp_rank",
      "cp_interleave", "cp_seqused_k_total", "out_scale", "num_splits", "plan"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 18> all;

    Argument& q() { return all[0]; }
    const Argument& q() const { return all[0]; }
    Argument& k() { return all[1]; }
    const Argument& k() const { return all[1]; }
    Argument& v() { return all[2]; }
    const Argument& v() const { return all[2]; }
    Argument& cu_seqlens_q() { return all[3]; }
    const Argument& cu_seqlens_q() const { return all[3]; }
    Argument& cu_seqlens_k() { return all[4]; }
    const Argument& cu_seqlens_k() const { return all[4]; }
    Argument& seqused_k() { return all[5]; }
    const Argument& seqused_k() const { return all[5]; }
    Argument& cache_seqlens() { return all[6]; }
    const Argument& cache_seqlens() const { return all[6]; }
    Argument& block_table() { return all[7]; }
    const Argument& block_table() const { return all[7]; }
    Argument& kv_indptr() { return all[8]; }
    const Argument& kv_indptr() const { return all[8]; }
    Argument& kv_indices() { return all[9]; }
    const Argument& kv_indices() const { return all[9]; }
    Argument& cache_batch_idx() { return all[10]; }
    const Argument& cache_batch_idx() const { return all[10]; }
    Argument& cache_leftpad() { return all[11]; }
    const Argument& cache_leftpad() const { return all[11]; }
    Argument& causal() { return all[12]; }
    const Argument& causal() const { return all[12]; }
    Argument& tree_mask() { return all[13]; }
    const Argument& tree_mask() const { return all[13]; }
    Argument& alibi_slopes() { return all[14]; }
    const Argument& alibi_slopes() const { return all[14]; }
    Argument& cp_seqused_k_total() { return all[15]; }
    const Argument& cp_seqused_k_total() const { return all[15]; }
    Argument& out_scale() { return all[16]; }
    const Argument& out_scale() const { return all[16]; }
    Argument& plan() { return all[17]; }
    const Argument& plan() const { return all[17]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"q", slots[kQ]},
        {"k", slots[kK]},
        {"v", slots[kV]},
        {"cu_seqlens_q", slots[kCuSeqlensQ]},
        {"cu_seqlens_k", slots[kCuSeqlensK]},
        {"seqused_k", slots[kSequsedK]},
        {"cache_seqlens", slots[kCacheSeqlens]},
        {"block_table", slots[kBlockTable]},
        {"kv_indptr", slots[kKvIndptr]},
        {"kv_indices", slots[kKvIndices]},
        {"cache_batch_idx", slots[kCacheBatchIdx]},
        {"cache_leftpad", slots[kCacheLeftpad]},
        {"causal", slots[kCausal]},
        {"tree_mask", slots[kTreeMask]},
        {"alibi_slopes", slots[kAlibiSlopes]},
        {"cp_seqused_k_total", slots[kCpSequsedKTotal]},
        {"out_scale", slots[kOutScale]},
        {"plan", slots[kPlan], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kSoftcap, options.softcap);
  }
};

// In the file of this operation.
PyObject* plan_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_plan_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
