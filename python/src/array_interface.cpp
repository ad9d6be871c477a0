// __cuda_array_interface__ (versions 2 and 3) and __array_interface__.
#include "array_interface.h"

#include "dtypes.h"
#include "errors.h"
#include "runtime/cuda/cuda_device.h"

namespace kiln::python {
namespace {

// The bytes of one element, 2 of "<f2"; 0 when there is no such number from 1 to 16.
int element_bytes(const std::string& typestr) {
  int bytes = 0;
  for (std::size_t i = 2; i < typestr.size(); ++i) {
    if (typestr[i] < '0' || typestr[i] > '9' || bytes > 16) return 0;
    bytes = bytes * 10 + (typestr[i] - '0');
  }
  return bytes <= 16 ? bytes : 0;
}

// "<f2" and so on. bfloat16 and the 8-bit floats have no typestr of their own ("<V2", "|V1",
// "<f1"), so their dtype's name tells.
DlDataType element_type(py::handle object, const std::string& typestr, Subject subject) {
  const bool is_big_endian = !typestr.empty() && typestr[0] == '>';
  if (typestr.size() >= 3 && !is_big_endian) {
    const bool is_named = typestr[1] == 'V' || typestr.substr(1) == "f1";
    if (is_named && py::hasattr(object, "dtype")) {
      const auto dtype = dtype_by_name(dtype_name_of(object.attr("dtype").ptr()));
      if (dtype) return dlpack_type_of(*dtype);
    }
    const int bytes = element_bytes(typestr);
    const auto bits = static_cast<std::uint8_t>(8 * bytes);
    switch (bytes > 0 ? typestr[1] : '\0') {
      case 'f':
        return {kDlFloat, bits, 1};
      case 'i':
        return {kDlInt, bits, 1};
      case 'u':
        return {kDlUInt, bits, 1};
      case 'b':
        return {kDlBool, bits, 1};
      case 'c':
        return {kDlComplex, bits, 1};
    }
  }
  throw_type(subject, "has the element type \"" + typestr +
                          "\", which Kiln does not compute with; cast it, to float16 say");
}

int device_ordinal(py::handle object, const void* data) {
  if (py::hasattr(object, "device") && py::hasattr(object.attr("device"), "id")) {
    return py::cast<int>(object.attr("device").attr("id"));
  }
  if (data == nullptr) return 0;
  const int ordinal = runtime::cuda_ordinal_of_pointer(data);
  return ordinal < 0 ? 0 : ordinal;  // no driver to ask: the first call on the device says so
}

void read_strides(py::handle strides, int item_bytes, ArrayInterface& array, Subject subject) {
  const int rank = array.tensor.ndim;
  if (strides.is_none()) {
    set_contiguous_strides(rank, array.shape.data(), array.strides.data());
    return;
  }
  const auto bytes = py::cast<py::tuple>(strides);
  if (static_cast<int>(bytes.size()) != rank)
    throw_value(subject,
                "has strides of another rank than its shape; correct its __cuda_array_interface__");
  for (int i = 0; i < rank; ++i) {
    const auto stride = py::cast<std::int64_t>(bytes[i]);
    if (stride % item_bytes != 0) {
      throw_value(subject,
                  "has a stride of " + std::to_string(stride) +
                      " bytes, which is no whole number of elements; make a contiguous copy");
    }
    array.strides[i] = stride / item_bytes;
  }
}

py::object get(const py::dict& interface, const char* key) {
  return interface.contains(key) ? py::object(interface[key]) : py::object(py::none());
}

}  // namespace

ArrayInterface read_interface(const TensorArgument& argument, const char* op) {
  const Subject subject{op, argument.name};
  const py::handle object(argument.object);
  const bool is_host = argument.framework.transport == Transport::numpy;
  const py::dict interface =
      object.attr(is_host ? "__array_interface__" : "__cuda_array_interface__");
  if (!get(interface, "mask").is_none()) throw_type(subject, "is a masked array; pass a plain one");
  const py::tuple shape = interface["shape"], data = interface["data"];
  ArrayInterface array;
  DlTensor& tensor = array.tensor;
  if (shape.size() > static_cast<std::size_t>(kMaxRank)) {
    throw_value(subject, "has " + std::to_string(shape.size()) +
                             " dimensions; no tensor of Kiln's has more than " +
                             std::to_string(kMaxRank));
  }
  tensor.ndim = static_cast<std::int32_t>(shape.size());
  for (int i = 0; i < tensor.ndim; ++i) array.shape[i] = py::cast<std::int64_t>(shape[i]);
  tensor.dtype = element_type(object, py::cast<std::string>(interface["typestr"]), subject);
  tensor.data = reinterpret_cast<void*>(py::cast<std::uintptr_t>(data[0]));
  if (argument.written && py::cast<bool>(data[1]))
    throw_type(subject, "is read-only; pass an array that can be written");
  tensor.device =
      is_host ? DlDevice{kDlCpu, 0} : DlDevice{kDlCuda, device_ordinal(object, tensor.data)};
  read_strides(get(interface, "strides"), tensor.dtype.bits / 8, array, subject);
  const py::object stream = get(interface, "stream");
  if (!stream.is_none()) {
    const auto handle = py::cast<std::uintptr_t>(stream);
    if (handle == 0)
      throw_value(
          subject,
          "names stream 0, which __cuda_array_interface__ forbids; give 1 for the default stream");
    // 1 and 2 are CUDA's own handles of the legacy and the per-thread default stream.
    array.stream = handle == 1 ? nullptr : reinterpret_cast<void*>(handle);
  }
  return array;
}

}  // namespace kiln::python
