// Declarations and bound values of jit.Variant and jit.Epilogue.
#include "bound_values.h"

#include <cstdio>

#include "arguments.h"
#include "errors.h"

namespace kiln::python {
namespace {

py::object take_value(py::dict& values, const std::string& name, const Declared& declared) {
  if (!values.contains(name.c_str())) {
    throw py::type_error(declared.kind + (" '" + declared.name) + "': missing " + name +
                         "=; it takes " + expected_names(declared));
  }
  return values.attr("pop")(name);
}

double param_value(py::handle value, const VariantParam& param, const char* kind) {
  const Subject subject{kind, param.name.c_str()};
  if (param.dtype == DType::i32) return int_argument(value.ptr(), subject);
  return float_argument(value.ptr(), 0.0f, subject);
}

// What a bound object keeps as its tensor. Like its memory, it must not change when the tensor is
// given other memory.
py::object kept_tensor(const TensorArgument& argument) {
  const auto tensor = py::reinterpret_borrow<py::object>(argument.object);
  if (argument.framework.is_torch) return tensor.attr("detach")();
  if (argument.framework.transport == Transport::cupy) return tensor.attr("view")();
  return tensor;
}

}  // namespace

std::string required_text(const char* kind, py::handle text, const char* what) {
  if (!PyUnicode_Check(text.ptr())) {
    throw_type({kind, what}, "must be a string, got " + repr_of(text.ptr()));
  }
  return std::string(string_argument(text.ptr(), {kind, what}));
}

std::vector<std::pair<std::string, std::string>> declarations(const char* kind,
                                                              const py::object& dict,
                                                              const char* argument) {
  std::vector<std::pair<std::string, std::string>> pairs;
  if (dict.is_none()) return pairs;
  for (const char* method : {"keys", "__getitem__"}) {
    if (!py::hasattr(dict, method)) {
      throw_type({kind, argument}, "must be a dict of names to types, got " + repr_of(dict.ptr()));
    }
  }
  for (auto [key, type] : py::dict(dict)) {
    const std::string name = required_text(kind, key, "name of a parameter or tensor");
    pairs.emplace_back(name, required_text(kind, type, ("type of '" + name + "'").c_str()));
  }
  return pairs;
}

std::string expected_names(const Declared& declared) {
  std::string text;
  for (const VariantParam& p : declared.params) text += (text.empty() ? "" : ", ") + p.name;
  for (const VariantTensor& t : declared.tensors) text += (text.empty() ? "" : ", ") + t.name;
  return text.empty() ? "no values" : text;
}

BoundValues take_values(const Declared& declared, py::dict values) {
  BoundValues bound;
  for (const VariantParam& param : declared.params) {
    const py::object value = take_value(values, param.name, declared);
    bound.scalars.push_back(param_value(value, param, declared.kind));
  }
  std::vector<py::object> given;
  std::vector<TensorArgument> arguments;
  for (const VariantTensor& tensor : declared.tensors) {
    given.push_back(take_value(values, tensor.name, declared));
    arguments.push_back({.name = tensor.name.c_str(), .object = given.back().ptr()});
    if (given.back().is_none()) {
      throw_type({declared.kind, tensor.name.c_str()}, "must be a tensor");
    }
  }
  if (!values.empty()) {
    throw py::type_error(declared.kind + (" '" + declared.name) + "': no parameter or tensor " +
                         repr_of(py::object(py::list(values)[0]).ptr()) + "; it takes " +
                         expected_names(declared));
  }
  TensorIntake intake(declared.kind, HostArrays::refused, Needed::longer);
  intake.read(arguments);
  for (const TensorArgument& argument : arguments) {
    bound.views.push_back(argument.view);
    bound.tensors.push_back(kept_tensor(argument));
  }
  bound.exports = intake.release_owners();
  return bound;
}

py::dict values_by_name(const Declared& declared, const std::vector<double>& scalars,
                        const std::vector<py::object>& tensors) {
  py::dict values;
  for (std::size_t i = 0; i < declared.params.size(); ++i) {
    const bool is_whole = declared.params[i].dtype == DType::i32;
    values[py::str(declared.params[i].name)] =
        is_whole ? py::object(py::int_(static_cast<std::int64_t>(scalars[i])))
                 : py::object(py::float_(scalars[i]));
  }
  for (std::size_t i = 0; i < declared.tensors.size(); ++i) {
    values[py::str(declared.tensors[i].name)] = tensors[i];
  }
  return values;
}

std::string digest_text(const Digest128& digest) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(digest[0]),
                static_cast<unsigned long long>(digest[1]));
  return text;
}

}  // namespace kiln::python
