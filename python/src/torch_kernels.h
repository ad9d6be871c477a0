// The operators torch.ops.kiln.* as PyTorch calls them from C++: without the GIL, without Python.
#pragma once

#include <pybind11/pybind11.h>

namespace kiln::python {

void register_torch(pybind11::module_& module);

}  // namespace kiln::python
