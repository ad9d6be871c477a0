// Written by scripts/signatures.py from python/operations.pyi: the parameters of jit.moe_unpermute,
// and its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct MoeUnpermuteSignature {
  static constexpr const char* kOp = "moe_unpermute";
  static constexpr int kPositional = 3;  // the rest is keyword-only
  static constexpr int kRequired = 2;
  static constexpr int kRequiredTensors = 2;

  enum Slot {
    kY, kInverse, kWeights, kOut, kOutDtype, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "y", "inverse", "weights", "out", "out_dtype"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 4> all;

    Argument& y() { return all[0]; }
    const Argument& y() const { return all[0]; }
    Argument& inverse() { return all[1]; }
    const Argument& inverse() const { return all[1]; }
    Argument& weights() { return all[2]; }
    const Argument& weights() const { return all[2]; }
    Argument& out() { return all[3]; }
    const Argument& out() const { return all[3]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"y", slots[kY]},
        {"inverse", slots[kInverse]},
        {"weights", slots[kWeights]},
        {"out", slots[kOut], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
  }
};

// In the file of this operation.
PyObject* moe_unpermute_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_moe_unpermute_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
