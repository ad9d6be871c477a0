// Python's exceptions for Kiln's.
#include "errors.h"

#include <algorithm>

#include "docstrings.h"
#include "kiln/error.h"

namespace kiln::python {
namespace {

// Created once at import and never freed: they outlive every module state.
PyObject* error_type = nullptr;
PyObject* compile_error_type = nullptr;
PyObject* cuda_error_type = nullptr;
PyObject* compile_disabled_type = nullptr;
PyObject* emulator_error_type = nullptr;

PyObject* add_type(py::module_& module, const char* name, const char* doc, PyObject* base) {
  const std::string qualified = std::string("kiln.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(qualified.c_str(), doc, base, nullptr);
  if (type == nullptr) rethrow_python_error();
  module.add_object(name, type);
  return type;
}

using Attributes = std::initializer_list<std::pair<const char*, py::object>>;

void raise_with_attributes(PyObject* type, const char* message, Attributes attributes) {
  const py::object instance = take(PyObject_CallFunction(type, "s", message));
  for (const auto& [name, value] : attributes) {
    if (PyObject_SetAttrString(instance.ptr(), name, value.ptr()) != 0) rethrow_python_error();
  }
  PyErr_SetObject(type, instance.ptr());
}

py::object text_or_none(const std::string& text) {
  return text.empty() ? py::object(py::none()) : py::object(py::str(text));
}
py::object index_or_none(std::int64_t index, std::int64_t first = 0) {
  return index < first ? py::object(py::none()) : py::object(py::int_(index));
}

void raise_emulator_error(const EmulatorError& error) {
  const EmulatorFault& fault = error.fault();
  const py::object block =
      fault.block[0] < 0
          ? py::object(py::none())
          : py::object(py::make_tuple(fault.block[0], fault.block[1], fault.block[2]));
  raise_with_attributes(emulator_error_type, error.what(),
                        {{"fault", py::str(fault.fault)},
                         {"kernel", text_or_none(fault.kernel)},
                         {"block", block},
                         {"warp", index_or_none(fault.warp)},
                         {"lane", index_or_none(fault.lane)},
                         {"ptx_line", index_or_none(fault.ptx_line, 1)},
                         {"instruction", text_or_none(fault.instruction)},
                         {"source", text_or_none(fault.source)}});
}

void raise_compile_disabled(const CompileDisabled& error) {
  // The spec as an object, so that kiln.prewarm([error.spec]) is the cure.
  const py::object spec = error.spec().empty()
                              ? py::object(py::none())
                              : py::module_::import("json").attr("loads")(error.spec());
  raise_with_attributes(compile_disabled_type, error.what(), {{"spec", spec}});
}

void translate(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (py::error_already_set& e) {
    e.restore();
  } catch (const py::builtin_exception& e) {
    e.set_error();
  } catch (const CompileError& e) {
    raise_with_attributes(compile_error_type, e.what(),
                          {{"log", py::str(e.log())}, {"path", py::str(e.path())}});
  } catch (const CompileDisabled& e) {
    raise_compile_disabled(e);
  } catch (const EmulatorError& e) {
    raise_emulator_error(e);
  } catch (const CudaError& e) {
    raise_with_attributes(cuda_error_type, e.what(),
                          {{"call", py::str(e.call())},
                           {"name", py::str(e.name())},
                           {"message", py::str(e.message())}});
  } catch (const Error& e) {
    PyErr_SetString(error_type, e.what());
  } catch (const TypeError& e) {
    PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const std::invalid_argument& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    PyErr_SetString(error_type, e.what());
  } catch (...) {
    PyErr_SetString(
        error_type,
        "an exception that is not a std::exception left Kiln's C++ code; please report this");
  }
}

}  // namespace

void set_python_error(std::exception_ptr error) noexcept {
  try {
    translate(error);
  } catch (py::error_already_set& e) {
    e.restore();  // building the exception object itself failed
  } catch (...) {
    PyErr_NoMemory();
  }
}

void register_exceptions(py::module_& module) {
  error_type = add_type(module, "Error", kErrorDoc, PyExc_RuntimeError);
  compile_error_type = add_type(module, "CompileError", kCompileErrorDoc, error_type);
  cuda_error_type = add_type(module, "CudaError", kCudaErrorDoc, error_type);
  compile_disabled_type = add_type(module, "CompileDisabled", kCompileDisabledDoc, error_type);
  emulator_error_type = add_type(module, "EmulatorError", kEmulatorErrorDoc, error_type);
  py::register_local_exception_translator([](std::exception_ptr error) {
    if (error) set_python_error(error);
  });
}

std::string take_python_error_text() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  std::string text = "unknown error";
  if (PyObject* string = value != nullptr ? PyObject_Str(value) : nullptr) {
    if (const char* utf8 = PyUnicode_AsUTF8(string)) text = utf8;
    text.resize(std::min(text.find('\n'), text.size()));  // without PyTorch's stack of C++ frames
    Py_DECREF(string);
  }
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return text;
}

}  // namespace kiln::python
