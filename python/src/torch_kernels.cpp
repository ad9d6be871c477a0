// The operators' kernels, and their registration. A call that is refused raises what the C entry
// raises.
#include "torch_kernels.h"

#include <pybind11/stl.h>

#include <array>
#include <string>
#include <vector>

#include "errors.h"
#include "options.h"
#include "torch_arguments.h"
#include "torch_tensors.h"

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

TorchSlot slot_of(TorchTensor tensor) { return reinterpret_cast<TorchSlot>(tensor.release()); }

void attend(TorchSlot* stack, Results results) {
  const AttentionArguments given(TorchArguments(stack), results);
  AttentionOptions options = given.options();
  TorchIntake intake(kAttentionOp);
  std::array<TorchArgument, 7> tensors{{{"q", given.q.get()},
                                        {"k", given.k.get()},
                                        {"v", given.v.get()},
                                        {"out", given.out.get(), true},
                                        {"lse", given.lse.get(), true},
                                        {"sinks", given.sinks.get()},
                                        {"alibi_slopes", given.alibi_slopes.get()}}};
  intake.read(tensors);
  auto& [q, k, v, out, lse, sinks, alibi_slopes] = tensors;
  options.sinks = sinks.view;
  options.alibi_slopes = alibi_slopes.view;
  options.workspace = intake.workspace();
  TorchTensor new_out, new_lse;
  if (results != Results::given) {
    out.view = flash_attention_output(q.view, v.view);
    new_out = intake.allocate(out.view);
  }
  if (results == Results::out_and_lse) {
    lse.view = lse_of(q.view, options.layout);
    new_lse = intake.allocate(lse.view);
  }
  flash_attention(q.view, k.view, v.view, out.view, lse.view, options, intake.stream());
  if (new_out) stack[0] = slot_of(std::move(new_out));
  if (new_lse) stack[1] = slot_of(std::move(new_lse));
}

void attend_as_pytorch(TorchSlot* stack) {
  const SdpaArguments given{TorchArguments(stack)};
  SdpaOptions options = given.options();
  TorchIntake intake(kSdpaOp);
  std::array<TorchArgument, 4> tensors{{{"query", given.query.get()},
                                        {"key", given.key.get()},
                                        {"value", given.value.get()},
                                        {"attn_mask", given.attn_mask.get()}}};
  intake.read(tensors);
  const auto& [query, key, value, mask] = tensors;
  options.workspace = intake.workspace();
  TensorView out =
      scaled_dot_product_attention_output(query.view, key.view, value.view, options.enable_gqa);
  TorchTensor result = intake.allocate(out);
  scaled_dot_product_attention(query.view, key.view, value.view, mask.view, out, options,
                               intake.stream());
  stack[0] = slot_of(std::move(result));
}

void multiply(TorchSlot* stack, Results results) {
  const GemmArguments given(TorchArguments(stack), results);
  GemmOptions options = given.options();
  const DType asked = given.asked_dtype();
  TorchIntake intake(kGemmOp);
  std::array<TorchArgument, 7> tensors{{{"a", given.a.get()},
                                        {"b", given.b.get()},
                                        {"out", given.out.get(), true},
                                        {"bias", given.bias.get()},
                                        {"residual", given.residual.get()},
                                        {"scale_a", given.scale_a.get()},
                                        {"scale_b", given.scale_b.get()}}};
  intake.read(tensors);
  auto& [a, b, out, bias, residual, scale_a, scale_b] = tensors;
  options.bias = bias.view;
  options.residual = residual.view;
  options.scale_a = scale_a.view;
  options.scale_b = scale_b.view;
  options.workspace = intake.workspace();
  check_out_dtype(asked, out.view);
  TorchTensor new_out;
  if (results == Results::out) {
    out.view = gemm_output(a.view, b.view, gemm_output_dtype(a.view.dtype, asked), options);
    new_out = intake.allocate(out.view);
  }
  gemm(a.view, b.view, out.view, options, intake.stream());
  if (new_out) stack[0] = slot_of(std::move(new_out));
}

// ------------------------------------------------------------------------------- registration

template <auto compute, auto... arguments>
void kernel(TorchSlot* stack, std::uint64_t, std::uint64_t) {
  try {
    compute(stack, arguments...);
  } catch (const std::exception& error) {
    throw KernelError(error.what(), std::current_exception());
  }
}

constexpr std::array<std::pair<const char*, TorchKernel*>, 6> kKernels = {{
    {"flash_attention", kernel<attend, Results::out>},
    {"flash_attention_lse", kernel<attend, Results::out_and_lse>},
    {"flash_attention_out", kernel<attend, Results::given>},
    {"scaled_dot_product_attention", kernel<attend_as_pytorch>},
    {"gemm", kernel<multiply, Results::out>},
    {"gemm_out", kernel<multiply, Results::given>},
}};

// False where PyTorch refused; the operators' kernels in Python then stay.
bool register_kernels(const std::string& ns, const char* key) {
  TorchLibraryObject* library = nullptr;  // kept: with it the kernels would go
  TorchStatus status =
      torch_abi().aoti_torch_library_init_impl(ns.c_str(), key, "kiln", 0, &library);
  for (const auto& [name, kernel] : kKernels) {
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

void register_torch(py::module_& module) {
  module.def("register_torch_kernels", &register_torch_kernels, py::arg("namespace"),
             py::arg("library"));
}

}  // namespace kiln::python
