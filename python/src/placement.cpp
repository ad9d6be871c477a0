// Where the tensors of one call lie.
#include "placement.h"

#include "dtypes.h"
#include "jit/op/device_choice.h"

namespace kiln::python {
namespace {

constexpr const char* kHostCure =
    "is in host memory; Kiln needs a CUDA device: move it to a GPU, for example with "
    "tensor.cuda(), or choose the emulated one with kiln.device(\"emulator\")";
constexpr const char* kNumpyCure =
    "is a NumPy array, in host memory; Kiln needs a CUDA device: move it there, for example with "
    "cupy.asarray(x) or torch.from_numpy(x).cuda(), or choose the emulated one with "
    "kiln.device(\"emulator\")";

bool on_cuda(DlDevice device) { return device.type == kDlCuda || device.type == kDlCudaManaged; }
bool on_host(DlDevice device) { return device.type == kDlCpu || device.type == kDlCudaHost; }
std::string device_text(int ordinal) { return "cuda:" + std::to_string(ordinal); }

}  // namespace

void Placement::enter(PlacedTensor tensor, DlDevice device) {
  if (leader_ == nullptr) {
    is_host_ = !on_cuda(device) && on_host(device) && emulates_host_tensors();
    is_array_ =
        !is_host_ && on_host(device) && host_arrays_ != HostArrays::refused && tensor.is_numpy;
    if (!on_cuda(device) && !is_host_ && !is_array_) refuse(tensor, device);
    leader_ = tensor.argument;
    ordinal_ = is_host_ ? 0 : is_array_ ? host_tensor_ordinal() : device.id;
    return;
  }
  if (!belongs_here(tensor, device)) [[unlikely]]
    refuse(tensor, device);
}

// With the tensors before it.
bool Placement::belongs_here(PlacedTensor tensor, DlDevice device) const {
  if (is_host_) return on_host(device);
  if (is_array_) return tensor.is_numpy;
  return on_cuda(device) && device.id == ordinal_;
}

void Placement::refuse(PlacedTensor tensor, DlDevice device) const {
  const Subject subject{op_, tensor.argument};
  if (!on_cuda(device) && !on_host(device)) {
    throw_type(subject, "is on a device of DLPack type " + std::to_string(device.type) +
                            "; Kiln needs a CUDA device (type 2)");
  }
  if (leader_ == nullptr) {
    throw_type(subject, tensor.is_numpy ? kNumpyCure : kHostCure);
  }
  const std::string first = leader_;
  if (is_array_) {
    throw_type(subject, "is no NumPy array but " + first +
                            " is; pass NumPy arrays alone, which are copied to the GPU and back, "
                            "or tensors on it alone, for example with cupy.asarray(x)");
  }
  if (on_host(device)) {
    throw_type(subject, "is in host memory but " + first + " is on " + device_text(ordinal_) +
                            "; move it there, for example with tensor.cuda() or cupy.asarray(x)");
  }
  if (is_host_) {
    throw_type(subject, "is on " + device_text(device.id) + " but " + first +
                            " is in host memory; move all tensors to the GPU, for example with "
                            "tensor.cuda() or cupy.asarray(x)");
  }
  throw_value(subject, "is on " + device_text(device.id) + " but " + first + " is on " +
                           device_text(ordinal_) + "; move all tensors to one device");
}

void set_contiguous_strides(int rank, const std::int64_t* shape, std::int64_t* strides) {
  std::int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[i] = stride;
    // An overflow is refused with the tensor, by the check of its strides.
    if (__builtin_mul_overflow(stride, shape[i], &stride)) stride = INT64_MAX;
  }
}

void Placement::set_view(PlacedTensor tensor, const DlTensor& memory, TensorView& view) {
  const Subject subject{op_, tensor.argument};
  enter(tensor, memory.device);
  if (memory.ndim < 0 || memory.ndim > kMaxRank) {
    throw_value(subject, "has " + std::to_string(memory.ndim) +
                             " dimensions; no tensor of Kiln's "
                             "has more than " +
                             std::to_string(kMaxRank));
  }
  view.dtype = dtype_of(memory.dtype);
  if (view.dtype == DType::other) {
    const bool is_integer = memory.dtype.code == kDlInt || memory.dtype.code == kDlUInt;
    throw_type(subject, "has dtype " + dlpack_type_text(memory.dtype) +
                            ", which Kiln does not compute with; cast it, to " +
                            (is_integer ? "int32" : "float16") + " say");
  }
  view.data = static_cast<char*>(memory.data) + memory.byte_offset;
  view.device_type = device_type();
  view.device_ordinal = ordinal_;
  view.rank = memory.ndim;
  for (int i = 0; i < memory.ndim; ++i) view.shape[i] = memory.shape[i];
  if (memory.strides != nullptr) [[likely]] {
    for (int i = 0; i < memory.ndim; ++i) view.strides[i] = memory.strides[i];
  } else {
    set_contiguous_strides(view.rank, view.shape, view.strides);
  }
}

void refuse_negative(Subject subject) {
  throw_type(subject,
             "is a view that PyTorch negates when it reads it (its negative bit is set, as on the "
             "imaginary part of a conjugate), and Kiln reads the memory as it is; pass "
             "tensor.resolve_neg(), or the part of z.resolve_conj()");
}

void refuse_grad(Subject subject) {
  throw_value(subject,
              "requires grad, and Kiln computes the forward pass only; call it under "
              "torch.no_grad() or pass tensor.detach()");
}

}  // namespace kiln::python
