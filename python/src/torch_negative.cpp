#include "torch_negative.h"

#include <cstddef>
#include <cstring>

#include "errors.h"
#include "torch_abi.h"

namespace kiln::python {
namespace {

// Tensor.is_neg() takes 80 ns, because it lets go of the GIL and takes it again, and a call asks
// three tensors and more. The C++ function behind it takes 2 ns, but wants the at::Tensor that the
// Python object holds. No contract says where that is, so it is looked for, and what the function
// then says is compared with what it must say.
struct QuickTest {
  TorchIsNegative* is_negative = nullptr;
  std::ptrdiff_t offset = 0;  // of the at::Tensor in the Python object
};
QuickTest g_quick;

bool is_negative_by_layout(PyObject* tensor) {
  return g_quick.is_negative(reinterpret_cast<const char*>(tensor) + g_quick.offset);
}

bool is_negative_by_name(PyObject* tensor) {
  return take(PyObject_CallMethod(tensor, "is_neg", nullptr)).ptr() == Py_True;
}

// Where the object holds the address of its implementation, as an at::Tensor does; 0 = nowhere.
std::ptrdiff_t offset_of_tensor(const py::object& tensor) {
  const py::object address = tensor.attr("_cdata");
  void* const implementation = PyLong_AsVoidPtr(address.ptr());
  if (implementation == nullptr) return 0;
  const char* const object = reinterpret_cast<const char*>(tensor.ptr());
  const std::ptrdiff_t size = Py_TYPE(tensor.ptr())->tp_basicsize;
  constexpr std::ptrdiff_t kWord = sizeof(void*);
  for (std::ptrdiff_t at = sizeof(PyObject); at + kWord <= size; at += kWord) {
    if (std::memcmp(object + at, &implementation, sizeof implementation) == 0) return at;
  }
  return 0;
}

// While it lives, modes of PyTorch's see none of this thread's operators.
class WithoutModes {
 public:
  explicit WithoutModes(const py::module_& torch)
      : guard_(torch.attr("_C").attr("_DisableTorchDispatch")()) {
    guard_.attr("__enter__")();
  }
  ~WithoutModes() {
    const py::error_scope error;  // is set again
    try {
      guard_.attr("__exit__")(py::none(), py::none(), py::none());
    } catch (py::error_already_set& failure) {
      failure.discard_as_unraisable("torch._C._DisableTorchDispatch");
    }
  }
  WithoutModes(const WithoutModes&) = delete;
  WithoutModes& operator=(const WithoutModes&) = delete;

 private:
  py::object guard_;
};

// Its tensors are no part of what the caller computes: make_fx would record them in its graph.
QuickTest find_quick_test() {
  const py::module_ torch = py::module_::import("torch");
  const WithoutModes without_modes(torch);
  const py::object plain = torch.attr("empty")(1, py::arg("device") = "cpu");
  const py::object negative = torch.attr("_neg_view")(plain);
  QuickTest quick{find_torch_is_negative(), offset_of_tensor(plain)};
  if (quick.is_negative == nullptr || quick.offset == 0) return {};
  g_quick = quick;
  const bool tells = offset_of_tensor(negative) == quick.offset &&
                     !is_negative_by_layout(plain.ptr()) && is_negative_by_layout(negative.ptr());
  return tells ? quick : QuickTest{};
}

}  // namespace

IsNegative* find_negative_test() {
  // Not found by an initialiser: a thread that waits for one with the GIL keeps it from ending.
  static constinit IsNegative* found = nullptr;
  if (found == nullptr) {
    g_quick = find_quick_test();
    found = g_quick.is_negative != nullptr ? &is_negative_by_layout : &is_negative_by_name;
  }
  return found;
}

}  // namespace kiln::python
