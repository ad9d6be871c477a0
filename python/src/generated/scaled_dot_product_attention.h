// Written by scripts/signatures.py from python/operations.pyi: the parameters of
// jit.scaled_dot_product_attention, and its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct ScaledDotProductAttentionSignature {
  static constexpr const char* kOp = "scaled_dot_product_attention";
  static constexpr int kPositional = 6;  // the rest is keyword-only
  static constexpr int kRequired = 3;
  static constexpr int kRequiredTensors = 3;

  enum Slot {
    kQuery, kKey, kValue, kAttnMask, kDropoutP, kIsCausal, kScale, kEnableGqa, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 4> all;

    Argument& query() { return all[0]; }
    const Argument& query() const { return all[0]; }
    Argument& key() { return all[1]; }
    const Argument& key() const { return all[1]; }
    Argument& value() { return all[2]; }
    const Argument& value() const { return all[2]; }
    Argument& attn_mask() { return all[3]; }
    const Argument& attn_mask() const { return all[3]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"query", slots[kQuery]},
        {"key", slots[kKey]},
        {"value", slots[kValue]},
        {"attn_mask", slots[kAttnMask]},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kDropoutP, options.dropout_p);
    visit(kIsCausal, options.is_causal);
    visit(kScale, options.scale);
    visit(kEnableGqa, options.enable_gqa);
  }
};

// In the file of this operation.
PyObject* scaled_dot_product_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_scaled_dot_product_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
