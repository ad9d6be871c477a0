// Python tensors to views of device or host memory.
#include "tensor.h"

#include <utility>

#include "array_interface.h"
#include "dtypes.h"
#include "errors.h"
#include "jit/call_arguments.h"
#include "jit/device_choice.h"
#include "names.h"
#include "output.h"
#include "streams.h"

namespace kiln::python {
namespace {

constexpr const char* kHostCure =
    "is in host memory; Kiln needs a CUDA device: move it to a GPU, for example with "
    "tensor.cuda(), or choose the emulated one with kiln.device(\"emulator\")";
constexpr const char* kNumpyCure =
    "is a NumPy array, in host memory; Kiln needs a CUDA device: move it there, for example with "
    "cupy.asarray(x) or torch.from_numpy(x).cuda(), or choose the emulated one with "
    "kiln.device(\"emulator\")";

// What arrays that are only shown pretend: as good a place as staging gives.
constexpr std::uintptr_t kPlaceAlignment = 256;

bool is_c_contiguous(const TensorView& view) {
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    if (view.shape[i] > 1 && view.strides[i] != stride) return false;
    stride *= view.shape[i];
  }
  return true;
}

bool is_cuda(DlDevice device) { return device.type == kDlCuda || device.type == kDlCudaManaged; }
bool is_host(DlDevice device) { return device.type == kDlCpu || device.type == kDlCudaHost; }
std::string device_text(int ordinal) { return "cuda:" + std::to_string(ordinal); }

// The capsule's tensor, and whether it must not be written.
const DlTensor& tensor_of(PyObject* capsule, Subject subject, bool& is_read_only) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    auto* managed =
        static_cast<DlManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major > 1) {
      throw_type(subject, "exports DLPack " + std::to_string(managed->version.major) +
                              ".x; this Kiln reads versions up to 1.x");
    }
    is_read_only = (managed->flags & kDlReadOnly) != 0;
    return managed->tensor;
  }
  if (!PyCapsule_IsValid(capsule, "dltensor")) {
    throw_type(subject, "must return a DLPack capsule from __dlpack__, got " + type_name(capsule));
  }
  is_read_only = false;
  return static_cast<DlManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
}

// Called only with a tensor of PyTorch's in hand, so torch is imported.
bool grad_is_enabled() {
  static PyObject* const ask =
      py::object(py::module_::import("torch").attr("is_grad_enabled")).release().ptr();
  return take(PyObject_CallNoArgs(ask)).ptr() == Py_True;
}

bool requires_grad(const TensorArgument& argument) {
  const PyGetSetDef* getter = argument.framework.requires_grad;
  return take(getter != nullptr ? getter->get(argument.object, getter->closure)
                                : PyObject_GetAttr(argument.object, names().requires_grad))
             .ptr() == Py_True;
}

}  // namespace

void TensorIntake::read(std::span<TensorArgument> arguments) {
  bool all_fast = true;
  for (TensorArgument& argument : arguments) {
    if (!argument.given()) continue;
    argument.framework = framework_of(argument.object, {op_, argument.name});
    all_fast = all_fast && argument.framework.transport == Transport::exchange;
  }
  refuse_grad(arguments);
  for (TensorArgument& argument : arguments) {
    if (argument.given() && argument.framework.transport != Transport::dlpack) read_one(argument);
  }
  if (!is_host_) [[likely]]
    find_stream(arguments);
  if (all_fast) [[likely]]
    return;
  // A generic producer is told our stream and orders its work before ours, so it comes last.
  for (TensorArgument& argument : arguments) {
    if (argument.given() && argument.framework.transport == Transport::dlpack) read_one(argument);
  }
  if (is_array_) place_arrays(arguments);
  const bool launches = host_arrays_ == HostArrays::copied && !is_host_;
  for (const TensorArgument& argument : arguments) {
    waits_ = waits_ || (launches && argument.given() && argument.framework.is_jax);
  }
}

TensorIntake::~TensorIntake() {
  if (!waits_) return;  // else the call failed behind a launch, whose memory JAX would give away
  try {
    synchronize(device_ordinal_, stream_);
  } catch (const std::exception&) {
    // The error on its way says more.
  }
}

void TensorIntake::place_arrays(std::span<TensorArgument> arguments) {
  if (host_arrays_ == HostArrays::copied) staged_.emplace(device_ordinal_);
  for (TensorArgument& argument : arguments) {
    if (!argument.given()) continue;
    if (!staged_) {
      const auto first = CallArguments::span_of(argument.view, false).address;
      const auto before = reinterpret_cast<std::uintptr_t>(argument.view.data) - first;
      argument.view.data = reinterpret_cast<void*>(kPlaceAlignment + before);
    } else if (argument.written) {
      if (!is_c_contiguous(argument.view)) {
        throw_value({op_, argument.name},
                    "must be C-contiguous where a GPU computes NumPy arrays; pass such an array, "
                    "or none and copy the result");
      }
      staged_->add_output(argument.view);
    } else {
      read_compact(argument);
      staged_->add_input(argument.view);
    }
  }
  if (!staged_) return;
  staged_->upload();
  stream_ = staged_->stream();
}

// An array of which most of the span is others' is copied first: the bus is slower than the host.
void TensorIntake::read_compact(TensorArgument& argument) {
  const std::size_t span = CallArguments::span_of(argument.view, false).bytes;
  if (span <= 2 * bytes_of_elements(argument.view)) return;
  owners_.push_back(
      py::module_::import("numpy").attr("ascontiguousarray")(py::handle(argument.object)));
  argument.object = owners_.back().ptr();
  read_array_interface(argument);
}

py::object TensorIntake::allocate(const TensorArgument& like, TensorView& view, const char* name) {
  py::object tensor = allocate_like(like, view, {op_, name});
  if (staged_) staged_->add_output(view);
  return tensor;
}

void TensorIntake::finish() {
  if (staged_) staged_->download();
  if (std::exchange(waits_, false)) synchronize(device_ordinal_, stream_);
}

void TensorIntake::refuse_grad(std::span<TensorArgument> arguments) const {
  bool asked = false;
  for (const TensorArgument& argument : arguments) {
    if (!argument.given() || !argument.framework.is_torch) continue;
    // Asked once and first: under no_grad, where inference runs, the tensors need not be asked.
    if (!asked && !grad_is_enabled()) return;
    asked = true;
    if (!requires_grad(argument)) continue;
    throw_value({op_, argument.name},
                "requires grad, and Kiln computes the forward pass only; call it under "
                "torch.no_grad() or pass tensor.detach()");
  }
}

void TensorIntake::find_stream(std::span<TensorArgument> arguments) {
  const TensorArgument* leader = nullptr;
  for (const TensorArgument& argument : arguments) {
    if (!argument.given() || !has_current_stream(argument.framework)) continue;
    if (leader != nullptr && argument.framework.api == leader->framework.api &&
        argument.framework.transport == leader->framework.transport) {
      continue;
    }
    void* stream = current_stream(argument.framework, device_ordinal_);
    if (has_stream_ && stream != stream_) {
      throw_value({op_, argument.name},
                  "comes from a framework whose current stream is not that of the other tensors; "
                  "make both frameworks use one stream");
    }
    stream_ = stream;
    has_stream_ = true;
    leader = &argument;
  }
}

void TensorIntake::read_one(TensorArgument& argument) {
  switch (argument.framework.transport) {
    case Transport::exchange:
      return read_exchange(argument);
    case Transport::torch:
    case Transport::dlpack:
      return read_dlpack(argument);
    case Transport::cupy:
    case Transport::numpy:
    case Transport::array_interface:
      return read_array_interface(argument);
  }
}

void TensorIntake::read_exchange(TensorArgument& argument) {
  DlTensor tensor;
  if (argument.framework.api->tensor_from_object(argument.object, &tensor) != 0) {
    throw_type({op_, argument.name},
               "has no plain memory that could be read: " + take_python_error_text());
  }
  set_view(argument, tensor);
}

py::object TensorIntake::export_dlpack(const TensorArgument& argument) const {
  const py::handle object(argument.object);
  if (is_host_) {  // host memory knows no streams
    const py::object tensor =
        argument.framework.is_torch ? object.attr("detach")() : py::cast<py::object>(object);
    if (argument.framework.is_torch) return tensor.attr("__dlpack__")();
    try {
      return tensor.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      return tensor.attr("__dlpack__")();
    }
  }
  if (argument.framework.transport == Transport::torch) {
    // Work goes to PyTorch's current stream, so nothing needs ordering: -1.
    return object.attr("detach")().attr("__dlpack__")(py::arg("stream") = -1);
  }
  const auto handle = reinterpret_cast<std::intptr_t>(stream_);
  const py::int_ stream(handle == 0 ? kLegacyStream : handle);
  try {
    return object.attr("__dlpack__")(py::arg("stream") = stream,
                                     py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // only producers older than DLPack 1.0 are retried
    return object.attr("__dlpack__")(py::arg("stream") = stream);
  }
}

void TensorIntake::read_dlpack(TensorArgument& argument) {
  const Subject subject{op_, argument.name};
  enter_device(argument, dlpack_device(argument.object));
  py::object capsule;
  try {
    capsule = export_dlpack(argument);
  } catch (py::error_already_set& error) {
    throw_type(subject, std::string("could not be exported through __dlpack__: ") + error.what());
  }
  read_capsule(argument, capsule);
  // Not renamed to "used_…": its own destructor then frees the export when the call is over.
  owners_.push_back(std::move(capsule));
}

void TensorIntake::read_capsule(TensorArgument& argument, const py::object& capsule) {
  bool is_read_only = false;
  const DlTensor& tensor = tensor_of(capsule.ptr(), {op_, argument.name}, is_read_only);
  // JAX exports its arrays as if they could be written to.
  if (argument.written && (is_read_only || argument.framework.is_jax)) {
    throw_type({op_, argument.name},
               "is read-only (its framework's arrays are immutable); pass a "
               "PyTorch or CuPy tensor to write to");
  }
  set_view(argument, tensor);
}

void TensorIntake::read_array_interface(TensorArgument& argument) {
  const ArrayInterface array = read_interface(argument, op_);
  DlTensor tensor = array.tensor;
  tensor.shape = const_cast<std::int64_t*>(array.shape.data());
  tensor.strides = const_cast<std::int64_t*>(array.strides.data());
  set_view(argument, tensor);
  if (argument.framework.transport != Transport::array_interface || !array.stream) return;
  if (has_stream_ && *array.stream != stream_) {
    throw_value({op_, argument.name},
                "was produced on another stream than the tensors before it; "
                "synchronise and export it again without a stream");
  }
  stream_ = *array.stream;
  has_stream_ = true;
}

// The first tensor decides where the call belongs.
void TensorIntake::enter_device(const TensorArgument& argument, DlDevice device) {
  if (device_argument_ == nullptr) {
    is_host_ = !is_cuda(device) && is_host(device) && emulates_host_tensors();
    is_array_ = !is_host_ && is_host(device) && host_arrays_ != HostArrays::refused &&
                argument.framework.transport == Transport::numpy;
    if (!is_cuda(device) && !is_host_ && !is_array_) refuse_device(argument, device);
    device_argument_ = argument.name;
    device_ordinal_ = is_host_ ? 0 : is_array_ ? host_tensor_ordinal() : device.id;
    return;
  }
  if (!belongs_here(argument, device)) [[unlikely]]
    refuse_device(argument, device);
}

// With the tensors before it.
bool TensorIntake::belongs_here(const TensorArgument& argument, DlDevice device) const {
  if (is_host_) return is_host(device);
  if (is_array_) return argument.framework.transport == Transport::numpy;
  return is_cuda(device) && device.id == device_ordinal_;
}

void TensorIntake::refuse_device(const TensorArgument& argument, DlDevice device) const {
  const Subject subject{op_, argument.name};
  if (!is_cuda(device) && !is_host(device)) {
    throw_type(subject, "is on a device of DLPack type " + std::to_string(device.type) +
                            "; Kiln needs a CUDA device (type 2)");
  }
  if (device_argument_ == nullptr) {
    throw_type(subject, argument.framework.transport == Transport::numpy ? kNumpyCure : kHostCure);
  }
  const std::string first = device_argument_;
  if (is_array_) {
    throw_type(subject, "is no NumPy array but " + first +
                            " is; pass NumPy arrays alone, which are copied to the GPU and back, "
                            "or tensors on it alone, for example with cupy.asarray(x)");
  }
  if (is_host(device)) {
    throw_type(subject, "is in host memory but " + first + " is on " +
                            device_text(device_ordinal_) +
                            "; move it there, for example with tensor.cuda() or cupy.asarray(x)");
  }
  if (is_host_) {
    throw_type(subject, "is on " + device_text(device.id) + " but " + first +
                            " is in host memory; move all tensors to the GPU, for example with "
                            "tensor.cuda() or cupy.asarray(x)");
  }
  throw_value(subject, "is on " + device_text(device.id) + " but " + first + " is on " +
                           device_text(device_ordinal_) + "; move all tensors to one device");
}

void TensorIntake::set_view(TensorArgument& argument, const DlTensor& tensor) {
  const Subject subject{op_, argument.name};
  enter_device(argument, tensor.device);
  if (tensor.ndim > kMaxRank) {
    throw_value(subject, "has " + std::to_string(tensor.ndim) +
                             " dimensions; no tensor of Kiln's "
                             "has more than " +
                             std::to_string(kMaxRank));
  }
  TensorView& view = argument.view;
  view.dtype = dtype_of(tensor.dtype);
  if (view.dtype == DType::other) {
    throw_type(subject, "has dtype " + dlpack_type_text(tensor.dtype) +
                            ", which Kiln does not compute with; cast it, to bfloat16 say");
  }
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.device_type = device_type();
  view.device_ordinal = device_ordinal_;
  view.rank = tensor.ndim;
  std::int64_t contiguous = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    view.shape[i] = tensor.shape[i];
    view.strides[i] = tensor.strides != nullptr ? tensor.strides[i] : contiguous;
    contiguous *= tensor.shape[i];
  }
}

}  // namespace kiln::python
