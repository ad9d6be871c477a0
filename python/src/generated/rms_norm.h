// Written by scripts/signatures.py from python/operations.pyi: the parameters of jit.rms_norm, and
// its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct RmsNormSignature {
  static constexpr const char* kOp = "rms_norm";
  static constexpr int kPositional = 2;  // the rest is keyword-only
  static constexpr int kRequired = 1;
  static constexpr int kRequiredTensors = 1;

  enum Slot {
    kX, kWeight, kEps, kWeightOffset, kResidual, kResidualOut, kActivation, kOut, kOutDtype, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "x", "weight", "eps", "weight_offset", "residual", "residual_out", "activation", "out",
      "out_dtype"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 5> all;

    Argument& x() { return all[0]; }
    const Argument& x() const { return all[0]; }
    Argument& weight() { return all[1]; }
    const Argument& weight() const { return all[1]; }
    Argument& residual() { return all[2]; }
    const Argument& residual() const { return all[2]; }
    Argument& residual_out() { return all[3]; }
    const Argument& residual_out() const { return all[3]; }
    Argument& out() { return all[4]; }
    const Argument& out() const { return all[4]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"x", slots[kX]},
        {"weight", slots[kWeight]},
        {"residual", slots[kResidual]},
        {"residual_out", slots[kResidualOut], true},
        {"out", slots[kOut], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kEps, options.eps);
    visit(kWeightOffset, options.weight_offset);
  }
};

// In the file of this operation.
PyObject* rms_norm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_rms_norm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
