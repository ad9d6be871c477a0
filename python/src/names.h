// Interned strings that the hot path looks up.
#pragma once

#include <pybind11/pybind11.h>

namespace kiln::python {

struct Names {
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
};

inline const Names& names() {
  static const Names instance;
  return instance;
}

}  // namespace kiln::python
