// New tensors in the caller's framework.
#include "output.h"

#include <cstring>

#include "array_interface.h"
#include "dtypes.h"
#include "errors.h"
#include "kiln/error.h"

namespace kiln::python {
namespace {

void set_allocation_error(void*, const char* kind, const char* message) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool is_memory =
      std::strstr(message, "out of memory") != nullptr || std::strcmp(kind, "MemoryError") == 0;
  PyErr_SetString(is_memory ? PyExc_MemoryError : PyExc_RuntimeError, message);
  PyGILState_Release(state);
}

ManagedTensor allocate_managed(const DlExchangeApi& api, TensorView& view) {
  DlTensor prototype{};
  prototype.device = view.device_type == DeviceType::cpu ? DlDevice{kDlCpu, 0}
                                                         : DlDevice{kDlCuda, view.device_ordinal};
  prototype.ndim = view.rank;
  prototype.dtype = dlpack_type_of(view.dtype);
  prototype.shape = view.shape;
  prototype.strides = view.strides;
  DlManagedTensorVersioned* managed = nullptr;
  if (api.allocate(&prototype, &managed, nullptr, set_allocation_error) != 0) {
    check_transforms();
    rethrow_python_error();
  }
  view.data = static_cast<char*>(managed->tensor.data) + managed->tensor.byte_offset;
  return ManagedTensor(managed);
}

py::object allocate_exchange(const DlExchangeApi& api, TensorView& view) {
  void* object = nullptr;
  if (api.managed_to_object(allocate_managed(api, view).release(), &object) != 0) {
    rethrow_python_error();
  }
  return take(static_cast<PyObject*>(object));
}

py::tuple shape_of(const TensorView& view) {
  py::tuple shape(view.rank);
  for (int i = 0; i < view.rank; ++i) shape[i] = py::int_(view.shape[i]);
  return shape;
}

py::object allocate_torch(const TensorArgument& like, TensorView& view) {
  py::module_ torch = py::module_::import("torch");
  py::object tensor =
      torch.attr("empty")(shape_of(view), py::arg("dtype") = torch.attr(name(view.dtype)),
                          py::arg("device") = py::handle(like.object).attr("device"));
  view.data = reinterpret_cast<void*>(py::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
  return tensor;
}

// Of NumPy's or CuPy's.
py::object array_dtype(const TensorArgument& like, DType dtype) {
  if (dtype == like.view.dtype) return py::handle(like.object).attr("dtype");
  const bool is_own = dtype == DType::bf16 || dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2 ||
                      dtype == DType::f8_e8m0;
  if (!is_own) return py::str(name(dtype));
  try {
    return py::module_::import("ml_dtypes").attr(name(dtype));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    throw TypeError(std::string("a ") + name(dtype) +
                    " array needs the package ml_dtypes: install it (pip install ml_dtypes) or "
                    "pass out=");
  }
}

py::object allocate_numpy(const TensorArgument& like, TensorView& view) {
  const py::object array = py::module_::import("numpy").attr("empty")(
      shape_of(view), py::arg("dtype") = array_dtype(like, view.dtype));
  view.data = reinterpret_cast<void*>(py::cast<std::uintptr_t>(array.attr("ctypes").attr("data")));
  return array;
}

py::object allocate_cupy(const TensorArgument& like, TensorView& view) {
  py::module_ cupy = py::module_::import("cupy");
  const py::object device = py::handle(like.object).attr("device");
  device.attr("__enter__")();
  py::object tensor;
  try {
    tensor = cupy.attr("empty")(shape_of(view), py::arg("dtype") = array_dtype(like, view.dtype));
  } catch (...) {
    device.attr("__exit__")(py::none(), py::none(), py::none());
    throw;
  }
  device.attr("__exit__")(py::none(), py::none(), py::none());
  view.data = reinterpret_cast<void*>(py::cast<std::uintptr_t>(tensor.attr("data").attr("ptr")));
  return tensor;
}

// JAX's arrays are immutable to its users; nobody has seen this one yet. It is complete before
// it is written to, and JAX knows nothing of our stream, so the call waits: TensorIntake::finish.
py::object allocate_jax(const TensorArgument& like, TensorView& view) {
  const py::object array =
      py::module_::import("jax.numpy")
          .attr("empty")(shape_of(view), py::arg("dtype") = name(view.dtype),
                         py::arg("device") = py::handle(like.object).attr("device"));
  array.attr("block_until_ready")();
  view.data =
      reinterpret_cast<void*>(py::cast<std::uintptr_t>(array.attr("unsafe_buffer_pointer")()));
  return array;
}

bool can_allocate(const Framework& framework) {
  switch (framework.transport) {
    case Transport::exchange:
      return framework.api->allocate != nullptr && framework.api->managed_to_object != nullptr;
    case Transport::dlpack:
      return framework.is_jax;
    case Transport::array_interface:
      return false;
    default:
      return true;
  }
}

}  // namespace

py::object allocate_like(const TensorArgument& like, TensorView& view, Subject subject) {
  if (can_allocate(like.framework)) {
    switch (like.framework.transport) {
      case Transport::exchange:
        return allocate_exchange(*like.framework.api, view);
      case Transport::torch:
        return allocate_torch(like, view);
      case Transport::cupy:
        return allocate_cupy(like, view);
      case Transport::dlpack:
        return allocate_jax(like, view);
      default:
        return allocate_numpy(like, view);
    }
  }
  throw_type(subject, "cannot be allocated for " + type_name(like.object) +
                          ", whose framework offers no allocator to others; pass " +
                          subject.argument + "=, for example a PyTorch" +
                          (view.device_type == DeviceType::cpu ? " tensor or a NumPy array"
                                                               : " or CuPy tensor"));
}

Workspace CallWorkspace::callback() {
  if (!can_allocate(like_.framework)) return {};
  return {[](void* self, std::size_t bytes) {
            return static_cast<CallWorkspace*>(self)->allocate(bytes);
          },
          this};
}

void* CallWorkspace::allocate(std::size_t bytes) {
  if (StagedArrays* staged = intake_.staged()) return staged->reserve(bytes);
  TensorView view = contiguous_view(nullptr, DType::u8, like_.view.device_ordinal,
                                    static_cast<std::int64_t>(bytes));
  view.device_type = like_.view.device_type;
  if (like_.framework.transport == Transport::exchange) {
    managed_ = allocate_managed(*like_.framework.api, view);
    return view.data;
  }
  memory_ = allocate_like(like_, view, {op_, "workspace"});
  return view.data;
}

}  // namespace kiln::python
