// The extension module kiln._core.
#include <pybind11/pybind11.h>

#include <string_view>

#include "entries.h"
#include "epilogue.h"
#include "errors.h"
#include "known_calls.h"
#include "torch_kernels.h"
#include "variant.h"

namespace kiln::python {
namespace {

// Under the name by which users call it, so that help() and pickle find it.
void add_entry(py::module_& module, PyMethodDef& definition, const char* home) {
  PyObject* function =
      take(PyCFunction_NewEx(&definition, nullptr, py::str(home).release().ptr())).release().ptr();
  module.add_object(definition.ml_name, function);
}

void register_entries(py::module_& module) {
  for (PyMethodDef& definition : operation_methods()) {
    const bool is_public = !std::string_view(definition.ml_name).starts_with("explain_");
    add_entry(module, definition, is_public ? "kiln.jit" : "kiln._core");
  }
}

}  // namespace
}  // namespace kiln::python

// Python calls the entry in main_interpreter.cpp, which calls this one.
#define PyInit__core init_by_pybind11
PYBIND11_MODULE(_core, module) {
  module.doc() = "Kiln's compiled part; use kiln and kiln.jit.";
  kiln::python::register_exceptions(module);
  kiln::python::register_entries(module);
  kiln::python::register_variant(module);
  kiln::python::register_epilogue(module);
  kiln::python::register_known_calls(module);
  kiln::python::register_control(module);
  kiln::python::register_emulate(module);
  kiln::python::register_tile_map(module);
  kiln::python::register_torch(module);
}
#undef PyInit__core
