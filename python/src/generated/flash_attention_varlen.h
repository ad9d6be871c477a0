// Written by scripts/signatures.py from python/operations.pyi: the parameters of
// jit.flash_attention_varlen, and its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct FlashAttentionVarlenSignature {
  static constexpr const char* kOp = "flash_attention_varlen";
  static constexpr int kPositional = 3;  // the rest is keyword-only
  static constexpr int kRequired = 6;
  static constexpr int kRequiredTensors = 4;

  enum Slot {
    kQ, kK, kV, kCuSeqlensQ, kMaxSeqlenQ, kMaxSeqlenK, kCuSeqlensK, kSequsedK, kBlockTable,
    kKvIndptr, kKvIndices, kCausal, kWindow, kTreeMask, kSoftcap, kScale, kSinks, kAlibiSlopes,
    kVariant, kQScale, kKScale, kVScale, kCpWorld, kCpRank, kCpInterleave, kCpSequsedKTotal,
    kOutScale, kNumSplits, kPlan, kOut, kLse, kReturnLse, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "q", "k", "v", "cu_seqlens_q", "max_seqlen_q", "max_seqlen_k", "cu_seqlens_k", "seqused_k",
      "block_table", "kv_indptr", "kv_indices", "causal", "window", "tree_mask", "softcap", "scale",
      "sinks", "alibi_slopes", "variant", "q_scale", "k_scale", "v_scale", "cp_world", "cp_rank",
      "cp_interleave", "cp_seqused_k_total", "out_scale", "num_splits", "plan", "out", "lse",
      "return_lse"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 21> all;

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
    Argument& block_table() { return all[6]; }
    const Argument& block_table() const { return all[6]; }
    Argument& kv_indptr() { return all[7]; }
    const Argument& kv_indptr() const { return all[7]; }
    Argument& kv_indices() { return all[8]; }
    const Argument& kv_indices() const { return all[8]; }
    Argument& causal() { return all[9]; }
    const Argument& causal() const { return all[9]; }
    Argument& tree_mask() { return all[10]; }
    const Argument& tree_mask() const { return all[10]; }
    Argument& sinks() { return all[11]; }
    const Argument& sinks() const { return all[11]; }
    Argument& alibi_slopes() { return all[12]; }
    const Argument& alibi_slopes() const { return all[12]; }
    Argument& q_scale() { return all[13]; }
    const Argument& q_scale() const { return all[13]; }
    Argument& k_scale() { return all[14]; }
    const Argument& k_scale() const { return all[14]; }
    Argument& v_scale() { return all[15]; }
    const Argument& v_scale() const { return all[15]; }
    Argument& cp_seqused_k_total() { return all[16]; }
    const Argument& cp_seqused_k_total() const { return all[16]; }
    Argument& out_scale() { return all[17]; }
    const Argument& out_scale() const { return all[17]; }
    Argument& plan() { return all[18]; }
    const Argument& plan() const { return all[18]; }
    Argument& out() { return all[19]; }
    const Argument& out() const { return all[19]; }
    Argument& lse() { return all[20]; }
    const Argument& lse() const { return all[20]; }
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
        {"block_table", slots[kBlockTable]},
        {"kv_indptr", slots[kKvIndptr]},
        {"kv_indices", slots[kKvIndices]},
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
PyObject* flash_attention_varlen_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_flash_attention_varlen_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
