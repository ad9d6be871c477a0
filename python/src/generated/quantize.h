// Written by scripts/signatures.py from python/operations.pyi: the parameters of jit.quantize, and
// its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct QuantizeSignature {
  static constexpr const char* kOp = "quantize";
  static constexpr int kPositional = 1;  // the rest is keyword-only
  static constexpr int kRequired = 1;
  static constexpr int kRequiredTensors = 1;

  enum Slot {
    kX, kGroup, kActivation, kScalePowerOfTwo, kScaleLayout, kCounts, kOut, kScaleOut, kOutDtype,
    kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "x", "group", "activation", "scale_power_of_two", "scale_layout", "counts", "out",
      "scale_out", "out_dtype"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 4> all;

    Argument& x() { return all[0]; }
    const Argument& x() const { return all[0]; }
    Argument& counts() { return all[1]; }
    const Argument& counts() const { return all[1]; }
    Argument& out() { return all[2]; }
    const Argument& out() const { return all[2]; }
    Argument& scale_out() { return all[3]; }
    const Argument& scale_out() const { return all[3]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"x", slots[kX]},
        {"counts", slots[kCounts]},
        {"out", slots[kOut], true},
        {"scale_out", slots[kScaleOut], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kScalePowerOfTwo, options.scale_power_of_two);
  }
};

// In the file of this operation.
PyObject* quantize_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_quantize_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
