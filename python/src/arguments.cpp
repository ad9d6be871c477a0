// Arguments of the raw C entries.
#include "arguments.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "dtypes.h"
#include "errors.h"
#include "options.h"

namespace kiln::python {
namespace {

// numpy.bool_ is no subclass of bool but means one.
bool is_numpy_bool(PyObject* object) {
  const char* name = Py_TYPE(object)->tp_name;
  return std::strcmp(name, "numpy.bool") == 0 || std::strcmp(name, "numpy.bool_") == 0;
}

// What other libraries call an argument, and its name here: an operation that has the second is
// asked for the first by users of flash-attn, FlashInfer, xFormers and PyTorch.
constexpr std::pair<const char*, const char*> kForeignNames[] = {
    {"softmax_scale", "scale"},
    {"sm_scale", "scale"},
    {"window_size", "window"},
    {"logits_soft_cap", "softcap"},
    {"is_causal", "causal"},
    {"causal", "is_causal"},
    {"attn_bias", "attn_mask"},
    {"mask", "attn_mask"},
    {"return_attn_probs", "return_lse"},
    {"return_softmax_lse", "return_lse"},
    {"query", "q"},
    {"key", "k"},
    {"value", "v"},
    {"q", "query"},
    {"k", "key"},
    {"v", "value"},
    {"k", "k_new"},
    {"v", "v_new"},
    {"page_table", "block_table"},
    {"leftpad_k", "cache_leftpad"},
    {"cp_world_size", "cp_world"},
    {"cp_tot_seqused_k", "cp_seqused_k_total"},
    {"logit", "logits"},
    {"input", "x"},
    {"epsilon", "eps"},
    {"transpose_a", "trans_a"},
    {"transpose_b", "trans_b"},
};

}  // namespace

std::string repr_of(PyObject* object) {
  const py::object text = py::reinterpret_steal<py::object>(PyObject_Repr(object));
  if (!text) {
    PyErr_Clear();
    return type_name(object);
  }
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (utf8 == nullptr) {  // lone surrogates
    PyErr_Clear();
    return type_name(object);
  }
  if (size <= 80) return {utf8, static_cast<std::size_t>(size)};
  std::size_t end = 77;
  while ((utf8[end] & 0xC0) == 0x80) --end;  // not inside a character
  return std::string(utf8, end) + "...";
}

Parameters::Parameters(const char* function, int positional, int required,
                       std::span<const char* const> names)
    : function_(function),
      positional_(positional),
      required_(required),
      size_(static_cast<int>(names.size())) {
  for (int i = 0; i < size_; ++i)
    names_[i] = take(PyUnicode_InternFromString(names[i])).release().ptr();
}

int Parameters::find(PyObject* keyword) const {
  for (int i = 0; i < size_; ++i) {
    if (names_[i] == keyword) return i;
  }
  // Keywords from **kwargs need not be interned.
  for (int i = 0; i < size_; ++i) {
    if (PyUnicode_Compare(names_[i], keyword) == 0) return i;
  }
  std::string hint;
  for (const auto& [foreign, ours] : kForeignNames) {
    const bool is_asked = PyUnicode_CompareWithASCIIString(keyword, foreign) == 0;
    for (int i = 0; is_asked && i < size_; ++i) {
      if (PyUnicode_CompareWithASCIIString(names_[i], ours) == 0) {
        hint = std::string("; its name here is '") + ours + "'";
      }
    }
  }
  throw py::type_error(std::string(function_) + "() got an unexpected keyword argument " +
                       repr_of(keyword) + hint);
}

void Parameters::parse(PyObject* const* args, Py_ssize_t count, PyObject* keywords,
                       PyObject** slots) const {
  if (count > positional_) {
    throw py::type_error(std::string(function_) + "() takes " + std::to_string(positional_) +
                         " positional arguments but " + std::to_string(count) +
                         " were given; the others are keyword-only");
  }
  for (Py_ssize_t i = 0; i < count; ++i) slots[i] = args[i];
  const Py_ssize_t keyword_count = keywords != nullptr ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t i = 0; i < keyword_count; ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, i);
    const int slot = find(keyword);
    if (slots[slot] != nullptr) {
      throw py::type_error(std::string(function_) + "() got multiple values for argument " +
                           repr_of(keyword));
    }
    slots[slot] = args[count + i];
  }
  for (int i = 0; i < required_; ++i) {
    if (slots[i] != nullptr) continue;
    throw py::type_error(std::string(function_) + "() is missing the argument " +
                         repr_of(names_[i]));
  }
}

std::vector<py::object> Parameters::parse(const py::args& args, const py::kwargs& keywords) const {
  std::vector<PyObject*> given;
  for (const py::handle argument : args) given.push_back(argument.ptr());
  py::tuple names(keywords.size());
  std::size_t count = 0;
  for (const auto& [name, value] : keywords) {
    names[count++] = name;
    given.push_back(value.ptr());
  }
  std::array<PyObject*, kMost> slots{};
  parse(given.data(), static_cast<Py_ssize_t>(args.size()), names.ptr(), slots.data());
  std::vector<py::object> values;
  for (int i = 0; i < size_; ++i) {
    PyObject* const value = slots[static_cast<std::size_t>(i)];
    values.push_back(py::reinterpret_borrow<py::object>(value != nullptr ? value : Py_None));
  }
  return values;
}

bool is_no_flag(PyObject* object) {
  return is_given(object) && !PyLong_Check(object) && !PyFloat_Check(object) &&
         !PyUnicode_Check(object) && !is_numpy_bool(object);
}

bool bool_argument(PyObject* object, bool otherwise, Subject subject) {
  if (object == nullptr) return otherwise;
  if (object == Py_True) return true;
  if (object == Py_False) return false;
  if (is_numpy_bool(object)) return PyObject_IsTrue(object) == 1;
  check_symbolic(object, subject);
  throw_type(subject, "must be True or False, got " + repr_of(object));
}

float float_argument(PyObject* object, float otherwise, Subject subject) {
  if (object == nullptr) return otherwise;
  if (PyBool_Check(object))
    throw_type(subject, "must be a number, got the bool " + repr_of(object));
  if (!PyFloat_Check(object)) [[unlikely]]
    check_symbolic(object, subject);
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    throw_type(subject, "must be a number, got " + repr_of(object));
  }
  if (overflows_float(value)) refuse_large_number(subject, repr_of(object));
  return static_cast<float>(value);
}

std::string_view string_argument(PyObject* object, Subject subject) {
  if (!is_given(object)) return {};
  if (!PyUnicode_Check(object)) throw_type(subject, "must be a string, got " + repr_of(object));
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) rethrow_python_error();
  return {text, static_cast<std::size_t>(size)};
}

py::object whole_number(PyObject* object, Subject subject) {
  if (PyBool_Check(object) || !PyIndex_Check(object)) return {};
  if (!PyLong_Check(object)) [[unlikely]]
    check_symbolic(object, subject);
  PyObject* const number = PyNumber_Index(object);
  if (number == nullptr && !PyErr_ExceptionMatches(PyExc_TypeError)) rethrow_python_error();
  PyErr_Clear();
  return py::reinterpret_steal<py::object>(number);
}

std::int64_t int64_argument(PyObject* object, Subject subject) {
  const py::object number = whole_number(object, subject);
  if (!number) throw_type(subject, "must be an integer, got " + repr_of(object));
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) throw_value(subject, "must fit an integer of 64 bits, got " + repr_of(object));
  return value;
}

int int_argument(PyObject* object, Subject subject) {
  return as_int(int64_argument(object, subject), subject);
}

DType dtype_argument(PyObject* object, Subject subject) {
  if (!is_given(object)) return DType::none;
  // torch.bfloat16 and its like are singletons: their names are read once.
  static std::array<std::pair<PyObject*, DType>, 8> known{};
  for (const auto& [seen, dtype] : known) {
    if (seen == object) return dtype;
  }
  const std::optional<DType> dtype = dtype_by_name(dtype_name_of(object));
  if (!dtype) refuse_dtype(subject, repr_of(object));
  for (auto& entry : known) {
    if (entry.first != nullptr) continue;
    Py_INCREF(object);
    entry = {object, *dtype};
    break;
  }
  return *dtype;
}

}  // namespace kiln::python
