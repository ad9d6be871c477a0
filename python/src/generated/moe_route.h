// Written by scripts/signatures.py from python/operations.pyi: the parameters of jit.moe_route, and
// its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct MoeRouteSignature {
  static constexpr const char* kOp = "moe_route";
  static constexpr int kPositional = 1;  // the rest is keyword-only
  static constexpr int kRequired = 2;
  static constexpr int kRequiredTensors = 1;

  enum Slot {
    kLogits, kTopK, kScoring, kRenormalize, kBias, kGroups, kTopGroups, kScale, kWeights, kExperts,
    kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "logits", "top_k", "scoring", "renormalize", "bias", "groups", "top_groups", "scale",
      "weights", "experts"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 4> all;

    Argument& logits() { return all[0]; }
    const Argument& logits() const { return all[0]; }
    Argument& bias() { return all[1]; }
    const Argument& bias() const { return all[1]; }
    Argument& weights() { return all[2]; }
    const Argument& weights() const { return all[2]; }
    Argument& experts() { return all[3]; }
    const Argument& experts() const { return all[3]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"logits", slots[kLogits]},
        {"bias", slots[kBias]},
        {"weights", slots[kWeights], true},
        {"experts", slots[kExperts], true},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kRenormalize, options.renormalize);
    visit(kScale, options.scale);
  }
};

// In the file of this operation.
PyObject* moe_route_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_moe_route_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
