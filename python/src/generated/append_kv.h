// Written by scripts/signatures.py from python/operations.pyi: the parameters of jit.append_kv, and
// its C entries.
#pragma once

#include <pybind11/pybind11.h>

#include <array>

namespace kiln::python {

struct AppendKvSignature {
  static constexpr const char* kOp = "append_kv";
  static constexpr int kPositional = 5;  // the rest is keyword-only
  static constexpr int kRequired = 5;
  static constexpr int kRequiredTensors = 5;

  enum Slot {
    kKey, kValue, kKCache, kVCache, kSlotMapping, kKScale, kVScale, kQuery, kQueryOut, kQWeight,
    kKWeight, kEps, kPositions, kCos, kSin, kInterleaved, kSlots
  };
  static constexpr std::array<const char*, kSlots> kNames = {
      "key", "value", "k_cache", "v_cache", "slot_mapping", "k_scale", "v_scale", "query",
      "query_out", "q_weight", "k_weight", "eps", "positions", "cos", "sin", "interleaved"};

  // The tensors of one call.
  template <class Argument>
  struct Tensors {
    std::array<Argument, 14> all;

    Argument& key() { return all[0]; }
    const Argument& key() const { return all[0]; }
    Argument& value() { return all[1]; }
    const Argument& value() const { return all[1]; }
    Argument& k_cache() { return all[2]; }
    const Argument& k_cache() const { return all[2]; }
    Argument& v_cache() { return all[3]; }
    const Argument& v_cache() const { return all[3]; }
    Argument& slot_mapping() { return all[4]; }
    const Argument& slot_mapping() const { return all[4]; }
    Argument& k_scale() { return all[5]; }
    const Argument& k_scale() const { return all[5]; }
    Argument& v_scale() { return all[6]; }
    const Argument& v_scale() const { return all[6]; }
    Argument& query() { return all[7]; }
    const Argument& query() const { return all[7]; }
    Argument& query_out() { return all[8]; }
    const Argument& query_out() const { return all[8]; }
    Argument& q_weight() { return all[9]; }
    const Argument& q_weight() const { return all[9]; }
    Argument& k_weight() { return all[10]; }
    const Argument& k_weight() const { return all[10]; }
    Argument& positions() { return all[11]; }
    const Argument& positions() const { return all[11]; }
    Argument& cos() { return all[12]; }
    const Argument& cos() const { return all[12]; }
    Argument& sin() { return all[13]; }
    const Argument& sin() const { return all[13]; }
  };

  template <class Argument>
  static Tensors<Argument> tensors(const std::array<PyObject*, kSlots>& slots) {
    return {{{
        {"key", slots[kKey]},
        {"value", slots[kValue]},
        {"k_cache", slots[kKCache], true},
        {"v_cache", slots[kVCache], true},
        {"slot_mapping", slots[kSlotMapping]},
        {"k_scale", slots[kKScale]},
        {"v_scale", slots[kVScale]},
        {"query", slots[kQuery]},
        {"query_out", slots[kQueryOut], true},
        {"q_weight", slots[kQWeight]},
        {"k_weight", slots[kKWeight]},
        {"positions", slots[kPositions]},
        {"cos", slots[kCos]},
        {"sin", slots[kSin]},
    }}};
  }

  // Visits each flag and number with its slot and the member of the options.
  template <class Options, class Visit>
  static void each_number(Options& options, Visit&& visit) {
    visit(kEps, options.eps);
    visit(kInterleaved, options.interleaved);
  }
};

// In the file of this operation.
PyObject* append_kv_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);
PyObject* explain_append_kv_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
    PyObject* keywords);

}  // namespace kiln::python
