// Which framework a tensor's Python type belongs to.
#include "frameworks.h"

#include <string_view>
#include <vector>

#include "errors.h"
#include "kiln/error.h"
#include "names.h"

namespace kiln::python {
namespace {

constexpr std::size_t kMaxTypes = 32;  // beyond it types are looked up anew at every call

std::string attribute_text(PyObject* object, const char* attribute) {
  const py::object value =
      py::reinterpret_steal<py::object>(PyObject_GetAttrString(object, attribute));
  const char* text =
      value && PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8(value.ptr()) : nullptr;
  PyErr_Clear();
  return text != nullptr ? text : "";
}

bool is_in_package(const std::string& module, std::string_view package) {
  return module == package || module.starts_with(std::string(package) + ".");
}

// A subclass may stand for no memory at all (FakeTensor) or for several tensors (nested, quantised
// wrappers): only the classes whose storage is what it seems are read.
bool is_plain_torch_type(const std::string& module, const std::string& name) {
  if (module == "torch") return name == "Tensor";
  return module == "torch.nn.parameter" && (name == "Parameter" || name == "Buffer");
}

bool inherits_torch_tensor(PyTypeObject* type) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro != nullptr && i < PyTuple_GET_SIZE(mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(mro, i);
    if (attribute_text(base, "__module__") == "torch" &&
        attribute_text(base, "__name__") == "Tensor") {
      return true;
    }
  }
  return false;
}

bool has_attribute(PyObject* object, const char* name) {
  return PyObject_HasAttrString(object, name) == 1;
}

const PyGetSetDef* c_getter(PyObject* type, const char* name) {
  const py::object attribute =
      py::reinterpret_steal<py::object>(PyObject_GetAttrString(type, name));
  PyErr_Clear();
  if (!attribute || Py_TYPE(attribute.ptr()) != &PyGetSetDescr_Type) return nullptr;
  return reinterpret_cast<PyGetSetDescrObject*>(attribute.ptr())->d_getset;  // lives with the type
}

[[noreturn]] void refuse_subclass(PyObject* object, const std::string& module, Subject subject) {
  if (is_in_package(module, "torch.nested")) throw_type(subject, kNestedTensor);
  const std::string message = std::string(subject.op) + ": " + subject.argument + " is a " +
                              type_name(object) +
                              ", a subclass of torch.Tensor that may not own plain memory; pass a "
                              "torch.Tensor or torch.nn.Parameter";
  if (is_in_package(module, "torch._subclasses")) throw TracedTensorError(message);
  throw TypeError(message);
}

Framework find_framework(PyObject* object, Subject subject) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* type_object = reinterpret_cast<PyObject*>(type);
  const std::string module = attribute_text(type_object, "__module__");
  const std::string name = attribute_text(type_object, "__qualname__");
  Framework framework{.type = type};
  if (inherits_torch_tensor(type)) {
    if (!is_plain_torch_type(module, name)) refuse_subclass(object, module, subject);
    framework.is_torch = true;
    framework.requires_grad = c_getter(type_object, "requires_grad");
    framework.is_negative = find_negative_test();
    framework.api = exchange_api_of(type_object);
    framework.transport = framework.api != nullptr ? Transport::exchange : Transport::torch;
  } else if (const DlExchangeApi* api = exchange_api_of(type_object)) {
    framework.api = api;
    framework.transport = Transport::exchange;
  } else if (is_in_package(module, "cupy")) {
    framework.transport = Transport::cupy;
  } else if (is_in_package(module, "numpy")) {
    // Of its subclasses, masked arrays and matrices mean more than their memory says.
    if (name != "ndarray" && name != "memmap") {
      throw_type(subject, "must be a plain NumPy array, got " + type_name(object) +
                              "; pass what numpy.asarray() makes of it");
    }
    framework.transport = Transport::numpy;
  } else if (has_attribute(object, "__dlpack__") && has_attribute(object, "__dlpack_device__")) {
    framework.transport = Transport::dlpack;
    framework.is_jax = is_in_package(module, "jaxlib") || is_in_package(module, "jax");
  } else if (has_attribute(object, "__cuda_array_interface__")) {
    framework.transport = Transport::array_interface;
  } else {
    const bool is_plain = PyList_Check(object) || PyTuple_Check(object) || PyLong_Check(object) ||
                          PyFloat_Check(object);
    throw_type(subject,
               "must be a tensor (PyTorch, CuPy, or any object with __dlpack__ or "
               "__cuda_array_interface__) or a NumPy array, got " +
                   type_name(object) +
                   (is_plain ? "; make a tensor of it where the others are" : ""));
  }
  return framework;
}

// A function of Python's that is never let go of. What holds it is filled at first need and not by
// an initialiser: a thread that waits for one with the GIL keeps it from ending.
PyObject* kept(py::object function) { return function.release().ptr(); }

}  // namespace

void throw_type(Subject subject, const std::string& what) {
  throw TypeError(std::string(subject.op) + ": " + subject.argument + " " + what);
}

void throw_value(Subject subject, const std::string& what) {
  throw std::invalid_argument(std::string(subject.op) + ": " + subject.argument + " " + what);
}

std::string type_name(PyObject* object) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  const std::string module = attribute_text(type, "__module__");
  const std::string name = attribute_text(type, "__qualname__");
  return module.empty() || module == "builtins" ? name : module + "." + name;
}

void check_dispatch_modes(Subject subject) {
  static constinit PyObject* count = nullptr;
  if (count == nullptr) {
    count = kept(py::module_::import("torch").attr("_C").attr("_len_torch_dispatch_stack"));
  }
  if (PyLong_AsLong(take(PyObject_CallNoArgs(count)).ptr()) == 0) [[likely]]
    return;
  throw TracedTensorError(std::string(subject.op) + ": " + subject.argument +
                          " is given while a mode looks at PyTorch's operators");
}

void check_transforms() {
  const auto are_active = [] {
    const py::error_scope error;  // is set again
    const auto torch =
        py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch").ptr()));
    return torch && torch.attr("_C").attr("_are_functorch_transforms_active")().cast<bool>();
  };
  if (!are_active()) return;
  PyErr_Clear();
  throw TracedTensorError("a transform of torch.func wraps what PyTorch allocates");
}

void check_symbolic(PyObject* number, Subject subject) {
  const std::string type = type_name(number);
  if (type != "torch.SymInt" && type != "torch.SymFloat" && type != "torch.SymBool") return;
  throw TracedTensorError(std::string(subject.op) + ": " + subject.argument +
                          " is a symbolic number, which only an operator takes");
}

bool grad_is_enabled() {
  static constinit PyObject* ask = nullptr;
  if (ask == nullptr) ask = kept(py::module_::import("torch").attr("is_grad_enabled"));
  return take(PyObject_CallNoArgs(ask)).ptr() == Py_True;
}

bool requires_grad(const Framework& framework, PyObject* tensor) {
  const PyGetSetDef* getter = framework.requires_grad;
  return take(getter != nullptr ? getter->get(tensor, getter->closure)
                                : PyObject_GetAttr(tensor, names().requires_grad))
             .ptr() == Py_True;
}

const DlExchangeApi* exchange_api_of(PyObject* type) {
  const py::object capsule =
      py::reinterpret_steal<py::object>(PyObject_GetAttrString(type, "__dlpack_c_exchange_api__"));
  if (!capsule || !PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) {
    PyErr_Clear();
    return nullptr;
  }
  auto* api =
      static_cast<const DlExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (api != nullptr && api->version.major > 1) api = api->previous;
  const bool is_usable = api != nullptr && api->version.major == 1 &&
                         api->tensor_from_object != nullptr && api->current_stream != nullptr;
  return is_usable ? api : nullptr;
}

Framework framework_of(PyObject* object, Subject subject) {
  // Guarded by the GIL. Each entry owns its type, so that a pointer is never reused.
  static std::vector<Framework> known;
  PyTypeObject* type = Py_TYPE(object);
  for (const Framework& framework : known) {
    if (framework.type == type) return framework;
  }
  const Framework framework = find_framework(object, subject);
  if (known.size() < kMaxTypes) {
    Py_INCREF(type);
    known.push_back(framework);
  }
  return framework;
}

}  // namespace kiln::python
