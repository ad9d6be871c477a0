#include "known_values.h"

#include <algorithm>
#include <span>

#include "errors.h"
#include "names.h"

namespace kiln::python {
namespace {

std::span<const std::int64_t> dimensions(const std::int64_t* values, int rank) {
  return {values, values == nullptr ? 0 : static_cast<std::size_t>(rank)};
}

std::int64_t whole_number(const py::object& number) {
  const std::int64_t value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) rethrow_python_error();
  return value;
}

py::object attribute(py::handle object, PyObject* name) {
  return take(PyObject_GetAttr(object.ptr(), name));
}

}  // namespace

KnownObject::KnownObject(py::object object_or_weak_reference)
    : kept_(std::move(object_or_weak_reference)), is_weak_(PyWeakref_CheckRef(kept_.ptr()) != 0) {}

py::object KnownObject::get() const {
  if (!is_weak_) return kept_;
#if PY_VERSION_HEX >= 0x030d0000
  PyObject* object = nullptr;
  if (PyWeakref_GetRef(kept_.ptr(), &object) < 0) rethrow_python_error();
  return py::reinterpret_steal<py::object>(object);
#else
  PyObject* const object = PyWeakref_GetObject(kept_.ptr());
  return object == Py_None ? py::object() : py::reinterpret_borrow<py::object>(object);
#endif
}

bool KnownFunction::is_the_same() const {
  const py::object found = function.get();
  if (!found) return false;
  PyObject* const object = found.ptr();
  if (PyFunction_GET_CODE(object) != code.ptr()) return false;
  if (PyFunction_GET_DEFAULTS(object) != nullptr) return false;
  PyObject* const defaults = PyFunction_GET_KW_DEFAULTS(object);
  if (defaults != nullptr && PyDict_Size(defaults) > 0) return false;
  // The same code has as many cells as before.
  PyObject* const closure = PyFunction_GET_CLOSURE(object);
  for (const auto& [place, value] : cells) {
    if (!value.is(PyCell_GET(PyTuple_GET_ITEM(closure, place)))) return false;
  }
  for (const auto& [name, value] : globals) {
    PyObject* const held = PyDict_GetItemWithError(PyFunction_GET_GLOBALS(object), name.ptr());
    if (held == nullptr && PyErr_Occurred() != nullptr) rethrow_python_error();
    if (!value.is(held)) return false;
  }
  return true;
}

KnownMemory::KnownMemory(const DlTensor& tensor)
    : data_(tensor.data),
      offset_(tensor.byte_offset),
      device_(tensor.device),
      dtype_(tensor.dtype) {
  const auto shape = dimensions(tensor.shape, tensor.ndim);
  const auto strides = dimensions(tensor.strides, tensor.ndim);
  shape_.assign(shape.begin(), shape.end());
  strides_.assign(strides.begin(), strides.end());
}

bool KnownMemory::operator==(const DlTensor& tensor) const {
  return data_ == tensor.data && offset_ == tensor.byte_offset &&
         device_.type == tensor.device.type && device_.id == tensor.device.id &&
         dtype_.code == tensor.dtype.code && dtype_.bits == tensor.dtype.bits &&
         std::ranges::equal(shape_, dimensions(tensor.shape, tensor.ndim)) &&
         std::ranges::equal(strides_, dimensions(tensor.strides, tensor.ndim));
}

bool read_tensor(const Framework& framework, PyObject* tensor, DlTensor& read) {
  if (framework.transport != Transport::exchange) return false;
  if (framework.api->tensor_from_object(tensor, &read) == 0) return true;
  PyErr_Clear();
  return false;
}

bool KnownTensor::is_the_same() const {
  const py::object found = tensor.get();
  DlTensor read;
  return found && read_tensor(framework, found.ptr(), read) && memory == read;
}

BlockLists lists_of(py::handle block_mask) {
  BlockLists found;
  const Names& known = names();
  PyObject* const attributes[] = {known.kv_num_blocks, known.kv_indices, known.full_kv_num_blocks,
                                  known.full_kv_indices};
  for (std::size_t i = 0; i < found.lists.size(); ++i) {
    found.lists[i] = attribute(block_mask, attributes[i]);
    if (found.lists[i].is_none()) continue;
    found.versions[i] = whole_number(attribute(found.lists[i], known.version));
  }
  const py::object size = attribute(block_mask, known.block_size);
  for (Py_ssize_t i = 0; i < 2; ++i) {
    found.size[i] = whole_number(take(PySequence_GetItem(size.ptr(), i)));
  }
  return found;
}

KnownBlocks::KnownBlocks(const BlockLists& found, void* current_stream)
    : versions(found.versions), size(found.size), stream(current_stream) {
  for (std::size_t i = 0; i < lists.size(); ++i) {
    lists[i] = KnownObject(weak_reference(found.lists[i]));
  }
}

bool KnownBlocks::are_the_same(const BlockLists& found, void* current_stream) const {
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (!lists[i].is(found.lists[i].ptr())) return false;
  }
  return versions == found.versions && size == found.size && stream == current_stream;
}

py::object weak_reference(py::handle object) {
  if (object.is_none()) return py::none();
  return take(PyWeakref_NewRef(object.ptr(), nullptr));
}

}  // namespace kiln::python
