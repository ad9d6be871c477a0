// Written by scripts/signatures.py from python/operations.pyi: the parameters of jit.merge_states,
// and its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct MergeStatesSignature {
  static constexpr const char* kOp = "merge_states";
  static constexpr int kPositional = 2;  // the rest is keyword-only
  static constexpr int kRequired = 2;
  static constexpr int kRequiredTensors = 2;

  enum Slot {
    kOuts, kLses, kBase, kLayout, kSinks, kOut, kLse, kReturnLse, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "outs", "lses", "base", "layout", "sinks", "out", "lse", "return_lse"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 5> all;

    Argument& outs() { return all[0]; }
    const Argument& outs() const { return all[0]; }
    Argument& lses() { return all[1]; }
    const Argument& lses() const { return all[1]; }
    Argument& sinks() { return all[2]; }
    const Argument& sinks() const { return all[2]; }
    Argument& out() { return all[3]; }
    const Argument& out() const { return all[3]; }
    Argument& lse() { return all[4]; }
    const Argument& lse() const { return all[4]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"outs", slots[kOuts]},
        {"lses", slots[kLses]},
        {"sinks", slots[kSinks]},
        {"out", slots[kOut], true},
        {"lse", slots[kLse], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
  }
};

// In the file of this operation.
PyObject* merge_states_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_merge_states_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
