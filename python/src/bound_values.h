// What jit.Variant and jit.Epilogue have in common: declarations by name, and the values and
// tensors that are bound to them.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>
#include <vector>

#include "kiln/variant.h"
#include "tensor.h"

namespace kiln::python {

namespace py = pybind11;

// The declarations of one definition. `kind` is the class that messages name.
struct Declared {
  const char* kind;
  const std::string& name;
  const std::vector<VariantParam>& params;
  const std::vector<VariantTensor>& tensors;
};

std::string required_text(const char* kind, py::handle text, const char* what);
// {"cap": "f32"} as pairs, in order.
std::vector<std::pair<std::string, std::string>> declarations(const char* kind,
                                                              const py::object& dict,
                                                              const char* argument);
// "cap, bias" of what a call must name, for messages.
std::string expected_names(const Declared& declared);

struct BoundValues {
  std::vector<double> scalars;
  std::vector<TensorView> views;
  std::vector<py::object> tensors;  // what was bound, in the declarations' order
  std::vector<py::object> exports;  // what the tensors' producers handed out: owns their memory
};

// Takes the values out of the dict.
BoundValues take_values(const Declared& declared, py::dict values);
// The values and tensors by name.
py::dict values_by_name(const Declared& declared, const std::vector<double>& scalars,
                        const std::vector<py::object>& tensors);
std::string digest_text(const Digest128& digest);

}  // namespace kiln::python
