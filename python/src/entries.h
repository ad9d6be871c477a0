// The raw C entries of the operations: no pybind11 dispatch and no Python wrapper on the hot path.
#pragma once

#include <pybind11/pybind11.h>

#include <span>

namespace kiln::python {

namespace py = pybind11;

// Entries of every operation under their names, in generated/methods.cpp.
std::span<PyMethodDef> operation_methods();

void register_control(py::module_& module);
void register_emulate(py::module_& module);
void register_tile_map(py::module_& module);

}  // namespace kiln::python
