// The tensors of one operator call.
#include "torch_tensors.h"

#include <string>

#include "errors.h"
#include "kiln/error.h"

namespace kiln::python {
namespace {

[[noreturn]] void refuse_memory() {
  const TorchAbi& abi = torch_abi();
  const char* said =
      abi.torch_exception_get_what != nullptr ? abi.torch_exception_get_what() : nullptr;
  const py::gil_scoped_acquire gil;
  PyErr_SetString(PyExc_MemoryError, said != nullptr && *said != '\0'
                                         ? said
                                         : "PyTorch could not allocate a tensor; it logged why");
  rethrow_python_error();
}

void* data_of(TorchTensorHandle tensor, bool written, TorchStatus& status) {
  void* data = nullptr;
  if (written) {
    status |= torch_abi().torch_get_mutable_data_ptr(tensor, &data);
    return data;
  }
  const void* constant = nullptr;
  status |= torch_abi().torch_get_const_data_ptr(tensor, &constant);
  return const_cast<void*>(constant);
}

[[noreturn]] void refuse_tensor(Subject subject, TorchTensorHandle tensor) {
  bool is_defined = true;
  torch_abi().aoti_torch_is_defined(tensor, &is_defined);
  if (!is_defined) throw_type(subject, "must be a tensor, got None");
  throw_type(subject, "has no plain memory that could be read: PyTorch logged what it has");
}

}  // namespace

void TorchIntake::read(std::span<TorchArgument> arguments) {
  // Under no_grad, where inference runs, the tensors need not be asked.
  if (torch_abi().aoti_torch_grad_mode_is_enabled()) {
    for (const TorchArgument& argument : arguments) {
      if (argument.tensor != nullptr && torch_abi().requires_grad(argument.tensor)) {
        refuse_grad({op_, argument.name});
      }
    }
  }
  for (TorchArgument& argument : arguments) {
    if (argument.tensor != nullptr) read_one(argument);
  }
  if (place_.is_host()) return;
  if (torch_abi().aoti_torch_get_current_cuda_stream(place_.ordinal(), &stream_) != 0) {
    throw Error(std::string(op_) + ": PyTorch did not tell its current stream on cuda:" +
                std::to_string(place_.ordinal()) + "; what it logged says why");
  }
}

void TorchIntake::read_one(TorchArgument& argument) {
  const TorchAbi& abi = torch_abi();
  std::int64_t rank = 0;
  std::int32_t dtype = 0, device_type = 0, device_index = 0;
  DlTensor memory{};
  TorchStatus status = abi.aoti_torch_get_dim(argument.tensor, &rank);
  status |= abi.aoti_torch_get_sizes(argument.tensor, &memory.shape);
  status |= abi.aoti_torch_get_strides(argument.tensor, &memory.strides);
  status |= abi.aoti_torch_get_dtype(argument.tensor, &dtype);
  status |= abi.aoti_torch_get_device_type(argument.tensor, &device_type);
  status |= abi.aoti_torch_get_device_index(argument.tensor, &device_index);
  memory.data = data_of(argument.tensor, argument.written, status);
  if (status != 0) refuse_tensor({op_, argument.name}, argument.tensor);
  if (abi.is_negative(argument.tensor)) [[unlikely]]
    refuse_negative({op_, argument.name});
  // The kernels stand where tensors are on CUDA or the CPU; others may be among them.
  const bool is_cuda = device_type == abi.aoti_torch_device_type_cuda();
  const bool is_cpu = device_type == abi.aoti_torch_device_type_cpu();
  memory.device = {is_cuda ? kDlCuda : is_cpu ? kDlCpu : device_type, is_cuda ? device_index : 0};
  memory.ndim = static_cast<std::int32_t>(rank);
  memory.dtype = abi.dlpack_type_of(dtype);
  place_.set_view({argument.name}, memory, argument.view);
}

TorchTensor TorchIntake::allocate(TensorView& view) {
  const TorchAbi& abi = torch_abi();
  view.device_type = place_.device_type();
  view.device_ordinal = place_.ordinal();
  TorchTensorHandle tensor = nullptr;
  const std::int32_t device_type =
      place_.is_host() ? abi.aoti_torch_device_type_cpu() : abi.aoti_torch_device_type_cuda();
  TorchStatus status =
      abi.aoti_torch_empty_strided(view.rank, view.shape, view.strides, abi.code_of(view.dtype),
                                   device_type, view.device_ordinal, &tensor);
  TorchTensor owner(tensor);
  if (status == 0) view.data = data_of(tensor, true, status);
  if (status != 0) refuse_memory();
  return owner;
}

Workspace TorchIntake::workspace() {
  return {[](void* self, std::size_t bytes) -> void* {
            auto& intake = *static_cast<TorchIntake*>(self);
            TensorView view =
                contiguous_view(nullptr, DType::u8, 0, static_cast<std::int64_t>(bytes));
            intake.workspace_ = intake.allocate(view);
            return view.data;
          },
          this};
}

}  // namespace kiln::python
