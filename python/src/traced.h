// Calls with tensors that PyTorch traces with: the operators of kiln.operators take them.
#pragma once

#include <string>

#include "errors.h"
#include "frameworks.h"

namespace kiln::python {

// Calls the Python function that replaces the operation while PyTorch traces, with the same
// arguments. Returns a new reference.
inline PyObject* call_operator(const char* op, PyObject* const* args, Py_ssize_t count,
                               PyObject* keywords) {
  const std::string module = std::string("kiln.operators._traced.") + op;
  const py::object function = py::module_::import(module.c_str()).attr(op);
  return take(PyObject_Vectorcall(function.ptr(), args, static_cast<std::size_t>(count), keywords))
      .release()
      .ptr();
}

// guarded(body), but for traced tensors.
template <class Body>
PyObject* guarded_or_traced(const char* op, PyObject* const* args, Py_ssize_t count,
                            PyObject* keywords, Body&& body) noexcept {
  return guarded([&]() -> PyObject* {
    try {
      return body();
    } catch (const TracedTensorError&) {
      return call_operator(op, args, count, keywords);
    }
  });
}

}  // namespace kiln::python
