// Calls of jit.flex_attention that come again have their variants from here: where callables hold
// the same objects and tensors have the same sizes, nothing is checked or looked up a second time.
#pragma once

#include <pybind11/pybind11.h>

namespace kiln::python {

// kiln._core.known_variant and what it is told by; kiln/flex/again.py decides what is remembered.
void register_known_calls(pybind11::module_& module);

}  // namespace kiln::python
