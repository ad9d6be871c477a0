// These values decided the variant of a call of jit.flex_attention: the objects that its callables
// hold, the memory of tensors, the lists of a BlockMask. They are kept to be compared with those of
// a later call, in a fraction of the time that it takes to find them.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "frameworks.h"

namespace kiln::python {

namespace py = pybind11;

// An object that a later call's is compared with by identity. It must be alive for that, or another
// object might have its address. Numbers and the like are therefore kept; what must not be kept
// alive is held by a weak reference.
class KnownObject {
 public:
  KnownObject() = default;  // no object
  explicit KnownObject(py::object object_or_weak_reference);

  // Returns the object, or none where it is no more.
  py::object get() const;
  // Null stands for no object.
  bool is(PyObject* other) const { return other == get().ptr() && (other != nullptr || !kept_); }

 private:
  py::object kept_;
  bool is_weak_ = false;
};

// A function holds what it reads in cells of its closure and in globals.
struct KnownFunction {
  KnownObject function;
  py::object code;
  std::vector<std::pair<Py_ssize_t, KnownObject>> cells;
  std::vector<std::pair<py::object, KnownObject>> globals;  // no object where none has the name

  // Whether the function is as it was, and each place holds the object that it held.
  bool is_the_same() const;
};

// This says where the elements of a tensor are, and how they are laid out.
class KnownMemory {
 public:
  KnownMemory() = default;
  explicit KnownMemory(const DlTensor& tensor);
  bool operator==(const DlTensor& tensor) const;

 private:
  void* data_ = nullptr;
  std::uint64_t offset_ = 0;
  DlDevice device_{};
  DlDataType dtype_{};
  std::vector<std::int64_t> shape_, strides_;
};

// Reads a tensor of PyTorch without owning its memory; false where PyTorch cannot say.
bool read_tensor(const Framework& framework, PyObject* tensor, DlTensor& read);

struct KnownTensor {
  KnownObject tensor;
  Framework framework;
  KnownMemory memory;
  bool is_bound = false;  // the variant was bound to it

  bool is_the_same() const;
};

// A BlockMask has four lists, each of which counts how often it was written to, and blocks of a
// size.
struct BlockLists {
  std::array<py::object, 4> lists;
  std::array<std::int64_t, 4> versions{};
  std::array<std::int64_t, 2> size{};
};
BlockLists lists_of(py::handle block_mask);

// These decide the tables of a BlockMask for a call of known sizes. The stream does, too, as
// another one would not wait for the work that makes them.
struct KnownBlocks {
  std::array<KnownObject, 4> lists;
  std::array<std::int64_t, 4> versions{};
  std::array<std::int64_t, 2> size{};
  void* stream = nullptr;

  KnownBlocks(const BlockLists& found, void* current_stream);
  bool are_the_same(const BlockLists& found, void* current_stream) const;
};

// Returns a weak reference to the object, as a KnownObject takes it; None stays None.
py::object weak_reference(py::handle object);

}  // namespace kiln::python
