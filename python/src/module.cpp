// The extension module kiln._core.
#include <string_view>

#include "docstrings.h"
#include "entries.h"
#include "errors.h"
#include "torch_kernels.h"
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
      {"scaled_dot_product_attention", as_method(&sdpa_entry), flags, kSdpaDoc},
      {"explain_flash_attention", as_method(&explain_flash_attention_entry), flags,
       kExplainFlashAttentionDoc},
      {"explain_scaled_dot_product_attention", as_method(&explain_sdpa_entry), flags,
       kExplainSdpaDoc},
      {"explain_gemm", as_method(&explain_gemm_entry), flags, kExplainGemmDoc},
  };
  for (PyMethodDef& definition : definitions) {
    const bool is_public = !std::string_view(definition.ml_name).starts_with("explain_");
    add_entry(module, definition, is_public ? "kiln.jit" : "kiln._core");
  }
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
  kiln::python::register_torch(module);
}
