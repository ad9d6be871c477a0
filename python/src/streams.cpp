// The current stream of each framework.
#include "streams.h"

#include "errors.h"

namespace kiln::python {
namespace {

void* handle_of(const py::object& number) {
  void* handle = PyLong_AsVoidPtr(number.ptr());
  if (handle == nullptr && PyErr_Occurred()) rethrow_python_error();
  return handle;
}

}  // namespace

void* current_stream(const Framework& framework, int device_ordinal) {
  switch (framework.transport) {
    case Transport::exchange: {
      void* stream = nullptr;
      if (framework.api->current_stream(kDlCuda, device_ordinal, &stream) != 0) {
        rethrow_python_error();
      }
      return stream;
    }
    case Transport::torch:
      return handle_of(py::module_::import("torch.cuda")
                           .attr("current_stream")(device_ordinal)
                           .attr("cuda_stream"));
    case Transport::cupy: {
      py::module_ cuda = py::module_::import("cupy.cuda");
      const py::object device = cuda.attr("Device")(device_ordinal);
      device.attr("__enter__")();
      const py::object stream = cuda.attr("get_current_stream")().attr("ptr");
      device.attr("__exit__")(py::none(), py::none(), py::none());
      return handle_of(stream);
    }
    default:
      return nullptr;
  }
}

DlDevice dlpack_device(PyObject* object) {
  const py::object pair = take(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  DlDevice device{};
  const py::tuple items = py::reinterpret_steal<py::tuple>(PySequence_Tuple(pair.ptr()));
  if (!items || items.size() != 2) {
    PyErr_Clear();
    throw py::type_error("__dlpack_device__ must return (device type, ordinal)");
  }
  device.type = static_cast<std::int32_t>(PyLong_AsLong(items[0].ptr()));
  device.id = static_cast<std::int32_t>(PyLong_AsLong(items[1].ptr()));
  if (PyErr_Occurred()) rethrow_python_error();
  return device;
}

}  // namespace kiln::python
