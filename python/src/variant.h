// jit.Variant in Python: a definition, and the object that binding it gives.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <vector>

#include "frameworks.h"
#include "kiln/variant.h"

namespace kiln::python {

namespace py = pybind11;

struct PyBoundVariant {
  BoundVariant bound;
  std::vector<py::object> tensors;  // what was bound, in the declarations' order
  std::vector<py::object> exports;  // what the tensors' producers handed out: owns their memory
};

struct PyVariant {
  Variant variant;
  std::optional<PyBoundVariant> without_values;  // when there is nothing to bind
};

void register_variant(py::module_& module);

// The variant that `variant=` was given; null for None and for an empty list. Accepts an unbound
// Variant that takes no values. A list is put together in `composed`, which must outlive the call.
const BoundVariant* variant_argument(PyObject* object, Subject subject,
                                     std::optional<BoundVariant>& composed);

}  // namespace kiln::python
