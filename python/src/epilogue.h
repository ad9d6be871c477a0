// Epilogues of jit.gemm with run-time values: jit.Epilogue, and a string with params= and tensors=.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bound_values.h"
#include "kiln/epilogue.h"
#include "kiln/gemm.h"

namespace kiln::python {

void register_epilogue(py::module_& module);

// What `epilogue=`, `params=` and `tensors=` of one call are given. Throws TypeError and
// ValueError.
class EpilogueArgument {
 public:
  EpilogueArgument(PyObject* epilogue, PyObject* params, PyObject* tensors);

  // Reads the call's tensors, and those of `tensors=` with them.
  void read(TensorIntake& intake, std::span<TensorArgument> arguments);
  // Once they are read.
  void set(GemmOptions& options);

 private:
  struct Named {
    std::string name;
    py::object value;
  };
  static std::vector<Named> named_values(PyObject* dict, const char* argument);
  void take_param(const Named& param);
  EpilogueDefinition definition() const;

  std::string_view text_;
  const BoundEpilogue* object_ = nullptr;  // the caller's
  std::vector<Named> tensors_;
  std::vector<VariantParam> params_;
  std::vector<double> values_;
  std::vector<TensorArgument> arguments_;
  std::optional<BoundEpilogue> bound_;
};

}  // namespace kiln::python
