// Registration of the operators' kernels, and the errors that these throw.
#include "torch_kernels.h"

#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "errors.h"

namespace kiln::python {
namespace {

// Travels through PyTorch, whose copy of pybind11 asks it for the Python error, under the GIL:
// a virtual call, so that the copies' versions may differ. Elsewhere it is a runtime error.
class KernelError final : public py::builtin_exception {
 public:
  KernelError(const char* what, std::exception_ptr cause)
      : builtin_exception(what), cause_(std::move(cause)) {}
  void set_error() const override { set_python_error(cause_); }

 private:
  std::exception_ptr cause_;
};

// False where PyTorch refused; the operators' kernels in Python then stay.
bool register_kernels(const std::string& ns, const char* key) {
  TorchLibraryObject* library = nullptr;  // kept: with it the kernels would go
  TorchStatus status =
      torch_abi().aoti_torch_library_init_impl(ns.c_str(), key, "kiln", 0, &library);
  for (const auto& [name, kernel] : torch_operators()) {
    if (status == 0) status = torch_abi().torch_library_impl(library, name, kernel, kTorchVersion);
  }
  return status == 0;
}

// The dispatch keys that kernels were registered under.
std::vector<std::string> register_torch_kernels(const std::string& ns, const std::string& library) {
  std::vector<std::string> keys;
  if (!find_torch_abi(library)) return keys;
  if (register_kernels(ns, "CPU")) keys.emplace_back("CPU");
  const bool has_cuda = torch_abi().aoti_torch_get_current_cuda_stream != nullptr;
  if (has_cuda && register_kernels(ns, "CUDA")) keys.emplace_back("CUDA");
  return keys;
}

}  // namespace

void rethrow_to_torch(const std::exception& error) {
  throw KernelError(error.what(), std::current_exception());
}

void register_torch(py::module_& module) {
  module.def("register_torch_kernels", &register_torch_kernels, py::arg("namespace"),
             py::arg("library"));
}

}  // namespace kiln::python
