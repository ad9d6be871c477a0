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
    kQ, kKCache, kVCache, kCacheSeqlens, kBlockTable, kCausal, kWindow, kSoftcap, kScale, kSinks,
    kAlibiSlopes, kVariant, kQScale, kKScale, kVScale, kNumSplits, kOut, kLse, kReturnLse, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "q", "k_cache", "v_cache", "cache_seqlens", "block_table", "causal", "window", "softcap",
      "scale", "sinks", "alibi_slopes", "variant", "q_scale", "k_scale", "v_scale", "num_splits",
      "out", "lse", "return_lse"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 12> all;

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
    Argument& sinks() { return all[5]; }
    const Argument& sinks() const { return all[5]; }
    Argument& alibi_slopes() { return all[6]; }
    const Argument& alibi_slopes() const { return all[6]; }
    Argument& q_scale() { return all[7]; }
    const Argument& q_scale() const { return all[7]; }
    Argument& k_scale() { return all[8]; }
    const Argument& k_scale() const { return all[8]; }
    Argument& v_scale() { return all[9]; }
    const Argument& v_scale() const { return all[9]; }
    Argument& out() { return all[10]; }
    const Argument& out() const { return all[10]; }
    Argument& lse() { return all[11]; }
    const Argument& lse() const { return all[11]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"q", slots[kQ]},
        {"k_cache", slots[kKCache]},
        {"v_cache", slots[kVCache]},
        {"cache_seqlens", slots[kCacheSeqlens]},
        {"block_table", slots[kBlockTable]},
        {"sinks", slots[kSinks]},
        {"alibi_slopes", slots[kAlibiSlopes]},
        {"q_scale", slots[kQScale]},
        {"k_scale", slots[kKScale]},
        {"v_scale", slots[kVScale]},
        {"out", slots[kOut], true},
        {"lse", slots[kLse], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kCausal, options.causal);
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
