// Written by scripts/signatures.py from python/operations.pyi: the parameters of
// jit.flash_attention, and its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct FlashAttentionSignature {
  static constexpr const char* kOp = "flash_attention";
  static constexpr int kPositional = 3;  // the rest is keyword-only
  static constexpr int kRequired = 3;
  static constexpr int kRequiredTensors = 3;

  enum Slot {
    kQ, kK, kV, kCausal, kTopLeft, kWindow, kSoftcap, kScale, kAttnMask, kSinks, kAlibiSlopes,
    kVariant, kQScale, kKScale, kVScale, kLayout, kOut, kLse, kReturnLse, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "q", "k", "v", "causal", "top_left", "window", "softcap", "scale", "attn_mask", "sinks",
      "alibi_slopes", "variant", "q_scale", "k_scale", "v_scale", "layout", "out", "lse",
      "return_lse"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 11> all;

    Argument& q() { return all[0]; }
    const Argument& q() const { return all[0]; }
    Argument& k() { return all[1]; }
    const Argument& k() const { return all[1]; }
    Argument& v() { return all[2]; }
    const Argument& v() const { return all[2]; }
    Argument& attn_mask() { return all[3]; }
    const Argument& attn_mask() const { return all[3]; }
    Argument& sinks() { return all[4]; }
    const Argument& sinks() const { return all[4]; }
    Argument& alibi_slopes() { return all[5]; }
    const Argument& alibi_slopes() const { return all[5]; }
    Argument& q_scale() { return all[6]; }
    const Argument& q_scale() const { return all[6]; }
    Argument& k_scale() { return all[7]; }
    const Argument& k_scale() const { return all[7]; }
    Argument& v_scale() { return all[8]; }
    const Argument& v_scale() const { return all[8]; }
    Argument& out() { return all[9]; }
    const Argument& out() const { return all[9]; }
    Argument& lse() { return all[10]; }
    const Argument& lse() const { return all[10]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"q", slots[kQ]},
        {"k", slots[kK]},
        {"v", slots[kV]},
        {"attn_mask", slots[kAttnMask]},
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
    visit(kTopLeft, options.top_left);
    visit(kSoftcap, options.softcap);
    visit(kScale, options.scale);
  }
};

// In the file of this operation.
PyObject* flash_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_flash_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
