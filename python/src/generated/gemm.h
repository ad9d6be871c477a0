// Written by scripts/signatures.py from python/operations.pyi: the parameters of jit.gemm, and its
// C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct GemmSignature {
  static constexpr const char* kOp = "gemm";
  static constexpr int kPositional = 2;  // the rest is keyword-only
  static constexpr int kRequired = 2;
  static constexpr int kRequiredTensors = 2;

  enum Slot {
    kA, kB, kTransA, kTransB, kBias, kActivation, kGate, kResidual, kScaleA, kScaleB, kAlpha, kOut,
    kOutDtype, kPrecision, kAccumulator, kEpilogue, kParams, kTensors, kOffsets, kCounts,
    kExpectedRows, kConfig, kPdl, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "a", "b", "trans_a", "trans_b", "bias", "activation", "gate", "residual", "scale_a",
      "scale_b", "alpha", "out", "out_dtype", "precision", "accumulator", "epilogue", "params",
      "tensors", "offsets", "counts", "expected_rows", "config", "pdl"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 9> all;

    Argument& a() { return all[0]; }
    const Argument& a() const { return all[0]; }
    Argument& b() { return all[1]; }
    const Argument& b() const { return all[1]; }
    Argument& bias() { return all[2]; }
    const Argument& bias() const { return all[2]; }
    Argument& residual() { return all[3]; }
    const Argument& residual() const { return all[3]; }
    Argument& scale_a() { return all[4]; }
    const Argument& scale_a() const { return all[4]; }
    Argument& scale_b() { return all[5]; }
    const Argument& scale_b() const { return all[5]; }
    Argument& out() { return all[6]; }
    const Argument& out() const { return all[6]; }
    Argument& offsets() { return all[7]; }
    const Argument& offsets() const { return all[7]; }
    Argument& counts() { return all[8]; }
    const Argument& counts() const { return all[8]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"a", slots[kA]},
        {"b", slots[kB]},
        {"bias", slots[kBias]},
        {"residual", slots[kResidual]},
        {"scale_a", slots[kScaleA]},
        {"scale_b", slots[kScaleB]},
        {"out", slots[kOut], true},
        {"offsets", slots[kOffsets]},
        {"counts", slots[kCounts]},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kTransA, options.trans_a);
    visit(kTransB, options.trans_b);
    visit(kAlpha, options.alpha);
  }
};

// In the file of this operation.
PyObject* gemm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_gemm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
