// The extension module kiln._core.
#include "docstrings.h"
#include "entries.h"
#include "errors.h"
#include "variant.h"

namespace kiln::python {
namespace {

template <class Function>
PyCFunction as_method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

// Under the name by which users call it, so that help() and pickle find it.
void add_entry(py::module_& module, PyMethodDef& definition, const char* home) {
  PyObject* function =
      take(PyCFunction_NewEx(&definition, nullptr, py::str(home).release().ptr())).release().ptr();
  module.add_object(definition.ml_name, function);
}

void register_entries(py::module_& module) {
  constexpr int flags = METH_FASTCALL | METH_KEYWORDS;
  static PyMethodDef definitions[] = {
      {"flash_attention", as_method(&flash_attention_entry), flags, kFlashAttentionDoc},
      {"gemm", as_method(&gemm_entry), flags, kGemmDoc},
      {"explain_flash_attention", as_method(&explain_flash_attention_entry), flags,
       kExplainFlashAttentionDoc},
      {"explain_gemm", as_method(&explain_gemm_entry), flags, kExplainGemmDoc},
  };
  add_entry(module, definitions[0], "kiln.jit");
  add_entry(module, definitions[1], "kiln.jit");
  add_entry(module, definitions[2], "kiln._core");
  add_entry(module, definitions[3], "kiln._core");
}

}  // namespace
}  // namespace kiln::python

PYBIND11_MODULE(_core, module) {
  module.doc() = "Kiln's compiled part; use kiln and kiln.jit.";
  kiln::python::register_exceptions(module);
  kiln::python::register_entries(module);
  kiln::python::register_variant(module);
  kiln::python::register_control(module);
  kiln::python::register_emulate(module);
}
