// Python's exceptions for Kiln's, and the guard around every raw C entry.
#pragma once

#include <pybind11/pybind11.h>

#include <exception>
#include <string>

namespace kiln::python {

namespace py = pybind11;

// Creates kiln.Error and its children and adds them to the module.
void register_exceptions(py::module_& module);

// Sets the Python error that stands for `error`.
void set_python_error(std::exception_ptr error) noexcept;

// Runs `body`, which returns a new reference; any exception becomes the Python error.
template <class Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    set_python_error(std::current_exception());
    return nullptr;
  }
}

// Throws the Python error that is set now.
[[noreturn]] inline void rethrow_python_error() { throw py::error_already_set(); }

// A new reference that a C-API call returned, or the exception that it set.
inline py::object take(PyObject* reference) {
  if (reference == nullptr) rethrow_python_error();
  return py::reinterpret_steal<py::object>(reference);
}

// The message of the Python error that is set now, which is cleared.
std::string take_python_error_text();

}  // namespace kiln::python
