// Written by scripts/signatures.py from python/operations.pyi: the parameters of jit.moe_permute,
// and its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct MoePermuteSignature {
  static constexpr const char* kOp = "moe_permute";
  static constexpr int kPositional = 2;  // the rest is keyword-only
  static constexpr int kRequired = 3;
  static constexpr int kRequiredTensors = 2;

  enum Slot {
    kX, kExperts, kNumExperts, kOut, kOffsets, kInverse, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "x", "experts", "num_experts", "out", "offsets", "inverse"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 5> all;

    Argument& x() { return all[0]; }
    const Argument& x() const { return all[0]; }
    Argument& experts() { return all[1]; }
    const Argument& experts() const { return all[1]; }
    Argument& out() { return all[2]; }
    const Argument& out() const { return all[2]; }
    Argument& offsets() { return all[3]; }
    const Argument& offsets() const { return all[3]; }
    Argument& inverse() { return all[4]; }
    const Argument& inverse() const { return all[4]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"x", slots[kX]},
        {"experts", slots[kExperts]},
        {"out", slots[kOut], true},
        {"offsets", slots[kOffsets], true},
        {"inverse", slots[kInverse], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
  }
};

// In the file of this operation.
PyObject* moe_permute_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_moe_permute_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
