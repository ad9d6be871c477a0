// jit.Variant in Python: a definition, and the object that binding it gives.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <vector>

#include "frameworks.h"
#include "kiln/variant.h"
#include "known_values.h"

namespace kiln::python {

namespace py = pybind11;

// A bound variant keeps what the last list that began with it was put together to. A list of two
// takes 4.6 us to put together on a CPU machine, and 0.1 us to know again.
struct KnownList {
  std::vector<KnownObject> others;  // weakly: what is behind the first
  std::shared_ptr<const BoundVariant> composed;
};

struct PyBoundVariant {
  BoundVariant bound;
  std::vector<py::object> tensors;  // what was bound, in the declarations' order
  std::vector<py::object> exports;  // what the tensors' producers handed out: owns their memory
  KnownList list{};
};

struct PyVariant {
  Variant variant;
  std::optional<PyBoundVariant> without_values;  // when there is nothing to bind
};

void register_variant(py::module_& module);

// The variant that `variant=` was given; null for None and for an empty list. Accepts an unbound
// Variant that takes no values. What a list is put together to is `composed`, which must outlive
// the call, as must the list's variants, which own the memory of tensors.
const BoundVariant* variant_argument(PyObject* object, Subject subject,
                                     std::shared_ptr<const BoundVariant>& composed);

}  // namespace kiln::python
