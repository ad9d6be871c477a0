// Python tensors to views of device or host memory.
#include "tensor.h"

#include <utility>

#include "array_interface.h"
#include "errors.h"
#include "jit/op/arguments.h"
#include "names.h"
#include "output.h"
#include "streams.h"

namespace kiln::python {
namespace {

// What arrays that are only shown pretend: as good a place as staging gives.
constexpr std::uintptr_t kPlaceAlignment = 256;

// The exchange gives no error for a tensor that torch.func.functionalize wraps, but its offset into
// a memory at address 0. Few tensors lie below this, so these are asked.
constexpr std::uintptr_t kLowAddress = std::uintptr_t{1} << 32;

bool is_c_contiguous(const TensorView& view) {
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    if (view.shape[i] > 1 && view.strides[i] != stride) return false;
    stride *= view.shape[i];
  }
  return true;
}

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

// The exchange table's quick read owns nothing.
void read_by_export(Framework& framework) {
  if (framework.transport != Transport::exchange) return;
  framework.transport = framework.is_torch ? Transport::torch : Transport::dlpack;
}

[[noreturn]] void refuse_wrapped(Subject subject) {
  throw TracedTensorError(std::string(subject.op) + ": " + subject.argument +
                          " is a tensor that torch.func wraps");
}

// Throws TracedTensorError for a tensor that torch.func.functionalize wraps.
void check_functional(const TensorArgument& argument, Subject subject) {
  if (!argument.framework.is_torch) return;
  const py::object is_functional = py::module_::import("torch").attr("_is_functional_tensor");
  if (is_functional(py::handle(argument.object)).cast<bool>()) refuse_wrapped(subject);
}

// Why a tensor has no memory, and what to give instead where its framework's own words would not
// help. Throws TracedTensorError for one that torch.func wraps, as vmap and jvp do.
std::string without_memory(const TensorArgument& argument, Subject subject) {
  const auto is = [&](const char* name) {
    const py::handle object(argument.object);
    return argument.framework.is_torch &&
           py::getattr(object, name, py::bool_(false)).is(py::bool_(true));
  };
  const std::string said = take_python_error_text();
  if (argument.framework.is_torch &&
      py::module_::import("torch._C._functorch")
          .attr("is_functorch_wrapped_tensor")(py::handle(argument.object))
          .cast<bool>()) {
    refuse_wrapped(subject);
  }
  if (is("is_nested")) return kNestedTensor;
  if (is("is_sparse") || is("is_sparse_csr")) {
    return "is a sparse tensor, which no operation takes; give its to_dense()";
  }
  if (is("is_meta")) {
    return "is on the meta device and has no numbers; give a tensor on a GPU or on the CPU";
  }
  return "has no plain memory that could be read: " + said;
}

PlacedTensor placed(const TensorArgument& argument) {
  return {argument.name, argument.framework.transport == Transport::numpy};
}

}  // namespace

void TensorIntake::read(std::span<TensorArgument> arguments) {
  bool all_fast = true;
  for (TensorArgument& argument : arguments) {
    if (!argument.given()) continue;
    argument.framework = framework_of(argument.object, {op_, argument.name});
    if (needed_ == Needed::longer) read_by_export(argument.framework);
    all_fast = all_fast && argument.framework.transport == Transport::exchange;
  }
  check_modes(arguments);
  check_grad(arguments);
  for (TensorArgument& argument : arguments) {
    if (argument.given() && argument.framework.transport != Transport::dlpack) read_one(argument);
  }
  if (!place_.is_host()) [[likely]]
    find_stream(arguments);
  if (all_fast) [[likely]]
    return;
  // A generic producer is told our stream and orders its work before ours, so it comes last.
  for (TensorArgument& argument : arguments) {
    if (argument.given() && argument.framework.transport == Transport::dlpack) read_one(argument);
  }
  if (place_.is_array()) place_arrays(arguments);
  const bool launches = place_.host_arrays() == HostArrays::copied && !place_.is_host();
  for (const TensorArgument& argument : arguments) {
    waits_ = waits_ || (launches && argument.given() && argument.framework.is_jax);
  }
}

void require(const char* op, std::span<const TensorArgument> arguments) {
  for (const TensorArgument& argument : arguments) {
    if (argument.object == Py_None) {
      throw_type({op, argument.name}, "must be a tensor, got None");
    }
  }
}

TensorIntake::~TensorIntake() {
  if (!waits_) return;  // else the call failed behind a launch, whose memory JAX would give away
  try {
    synchronize(place_.ordinal(), stream_);
  } catch (const std::exception&) {
    // The error on its way says more.
  }
}

void TensorIntake::place_arrays(std::span<TensorArgument> arguments) {
  if (place_.host_arrays() == HostArrays::copied) staged_.emplace(op_, place_.ordinal());
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
  if (std::exchange(waits_, false)) synchronize(place_.ordinal(), stream_);
}

void TensorIntake::check_grad(std::span<TensorArgument> arguments) const {
  bool asked = false;
  for (const TensorArgument& argument : arguments) {
    if (!argument.given() || !argument.framework.is_torch) continue;
    // Asked once and first: under no_grad, where inference runs, the tensors need not be asked.
    if (!asked && !grad_is_enabled()) return;
    asked = true;
    if (!requires_grad(argument.framework, argument.object)) continue;
    refuse_grad({op_, argument.name});
  }
}

void TensorIntake::check_modes(std::span<const TensorArgument> arguments) const {
  if (place_.host_arrays() == HostArrays::shown) return;  // nothing is computed
  for (const TensorArgument& argument : arguments) {
    if (!argument.given() || !argument.framework.is_torch) continue;
    return check_dispatch_modes({op_, argument.name});
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
    void* stream = current_stream(argument.framework, place_.ordinal());
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
  const Framework& framework = argument.framework;
  if (framework.is_negative != nullptr && framework.is_negative(argument.object)) [[unlikely]]
    refuse_negative({op_, argument.name});
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
  const Subject subject{op_, argument.name};
  DlTensor tensor;
  if (argument.framework.api->tensor_from_object(argument.object, &tensor) != 0) {
    throw_type(subject, without_memory(argument, subject));
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data) < kLowAddress) [[unlikely]]
    check_functional(argument, subject);
  place_.set_view(placed(argument), tensor, argument.view);
}

py::object TensorIntake::export_dlpack(const TensorArgument& argument) const {
  const py::handle object(argument.object);
  if (place_.is_host()) {  // host memory knows no streams
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
  py::object capsule;
  try {
    place_.enter(placed(argument), dlpack_device(argument.object));
    capsule = export_dlpack(argument);
  } catch (py::error_already_set& error) {  // its what() has the whole traceback
    throw_type(subject, "could not be exported through __dlpack__: " +
                            py::cast<std::string>(py::str(error.type().attr("__name__"))) + ": " +
                            py::cast<std::string>(py::str(error.value())));
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
  place_.set_view(placed(argument), tensor, argument.view);
}

void TensorIntake::read_array_interface(TensorArgument& argument) {
  const ArrayInterface array = read_interface(argument, op_);
  DlTensor tensor = array.tensor;
  tensor.shape = const_cast<std::int64_t*>(array.shape.data());
  tensor.strides = const_cast<std::int64_t*>(array.strides.data());
  place_.set_view(placed(argument), tensor, argument.view);
  if (argument.framework.transport != Transport::array_interface || !array.stream) return;
  if (has_stream_ && *array.stream != stream_) {
    throw_value({op_, argument.name},
                "was produced on another stream than the tensors before it; "
                "synchronise and export it again without a stream");
  }
  stream_ = *array.stream;
  has_stream_ = true;
}

}  // namespace kiln::python
