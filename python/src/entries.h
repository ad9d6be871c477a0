// The raw C entries of the operations: no pybind11 dispatch and no Python wrapper on the hot path.
#pragma once

#include <pybind11/pybind11.h>

namespace kiln::python {

namespace py = pybind11;

PyObject* flash_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                PyObject* keywords);
PyObject* explain_flash_attention_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                                        PyObject* keywords);
PyObject* sdpa_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords);
PyObject* explain_sdpa_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                             PyObject* keywords);
PyObject* gemm_entry(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords);
PyObject* explain_gemm_entry(PyObject*, PyObject* const* args, Py_ssize_t count,
                             PyObject* keywords);

void register_control(py::module_& module);
void register_emulate(py::module_& module);

}  // namespace kiln::python
