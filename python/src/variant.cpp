// jit.Variant in Python.
#include "variant.h"

#include <string>

#include "arguments.h"
#include "docstrings.h"
#include "errors.h"
#include "jit/op/variant_json.h"
#include "tensor.h"

namespace kiln::python {
namespace {

std::string read_file(const py::object& path) {
  // open() would take an int as a descriptor, and close it.
  if (!PyUnicode_Check(path.ptr()) && !py::hasattr(path, "__fspath__")) {
    throw_type({"Variant", "file"}, "must be a path, got " + repr_of(path.ptr()));
  }
  py::object file = py::module_::import("io").attr("open")(path, py::arg("encoding") = "utf-8");
  const std::string text = py::cast<std::string>(file.attr("read")());
  file.attr("close")();
  return text;
}

std::string optional_text(const py::object& text, const char* argument) {
  return std::string(string_argument(text.ptr(), {"Variant", argument}));
}

std::string required_text(py::handle text, const char* what) {
  if (!PyUnicode_Check(text.ptr())) {
    throw_type({"Variant", what}, "must be a string, got " + repr_of(text.ptr()));
  }
  return std::string(string_argument(text.ptr(), {"Variant", what}));
}

// {"cap": "f32"} as pairs, in order.
std::vector<std::pair<std::string, std::string>> declarations(const py::object& dict,
                                                              const char* argument) {
  std::vector<std::pair<std::string, std::string>> pairs;
  if (dict.is_none()) return pairs;
  for (const char* method : {"keys", "__getitem__"}) {
    if (!py::hasattr(dict, method)) {
      throw_type({"Variant", argument},
                 "must be a dict of names to types, got " + repr_of(dict.ptr()));
    }
  }
  for (auto [key, type] : py::dict(dict)) {
    const std::string name = required_text(key, "name of a parameter or tensor");
    pairs.emplace_back(name, required_text(type, ("type of '" + name + "'").c_str()));
  }
  return pairs;
}

PyVariant make_variant(const py::object& name, const py::object& params, const py::object& tensors,
                       const py::object& logits, const py::object& mask, const py::object& file) {
  VariantDefinition definition;
  definition.name = required_text(name, "name");
  for (const auto& [key, type] : declarations(params, "params")) {
    definition.params.push_back({key, parse_short_dtype(type)});
  }
  for (const auto& [key, text] : declarations(tensors, "tensors")) {
    definition.tensors.push_back(parse_tensor_declaration(key, text));
  }
  definition.logits = optional_text(logits, "logits");
  definition.mask = optional_text(mask, "mask");
  if (!file.is_none()) {
    definition.file_text = read_file(file);
    definition.file_name = py::cast<std::string>(py::str(file));
  }
  PyVariant variant{Variant(std::move(definition)), std::nullopt};
  const VariantDefinition& checked = variant.variant.definition();
  if (checked.params.empty() && checked.tensors.empty()) {
    variant.without_values = PyBoundVariant{variant.variant.bind({}, {}), {}};
  }
  return variant;
}

// "cap, bias" of what the call must name, for messages.
std::string expected_names(const VariantDefinition& definition) {
  std::string text;
  for (const VariantParam& param : definition.params)
    text += (text.empty() ? "" : ", ") + param.name;
  for (const VariantTensor& t : definition.tensors) text += (text.empty() ? "" : ", ") + t.name;
  return text.empty() ? "no values" : text;
}

py::object take_value(py::dict& values, const std::string& name,
                      const VariantDefinition& definition) {
  if (!values.contains(name.c_str())) {
    throw py::type_error("Variant '" + definition.name + "': missing " + name + "=; it takes " +
                         expected_names(definition));
  }
  return values.attr("pop")(name);
}

double param_value(py::handle value, const VariantParam& param) {
  const Subject subject{"Variant", param.name.c_str()};
  if (param.dtype == DType::i32) return int_argument(value.ptr(), subject);
  return float_argument(value.ptr(), 0.0f, subject);
}

PyBoundVariant bind(const PyVariant& self, const py::args& args, const py::kwargs& kwargs) {
  const VariantDefinition& definition = self.variant.definition();
  if (!args.empty()) {
    throw py::type_error("Variant: values are passed by name: " + expected_names(definition));
  }
  py::dict values = kwargs.attr("copy")();
  std::vector<double> scalars;
  for (const VariantParam& param : definition.params) {
    scalars.push_back(param_value(take_value(values, param.name, definition), param));
  }
  std::vector<py::object> owners;
  std::vector<TensorArgument> arguments;
  for (const VariantTensor& tensor : definition.tensors) {
    owners.push_back(take_value(values, tensor.name, definition));
    arguments.push_back({.name = tensor.name.c_str(), .object = owners.back().ptr()});
    if (owners.back().is_none()) throw_type({"Variant", tensor.name.c_str()}, "must be a tensor");
  }
  if (!values.empty()) {
    throw py::type_error("Variant '" + definition.name + "': no parameter or tensor " +
                         py::cast<std::string>(py::repr(py::list(values)[0])) + "; it takes " +
                         expected_names(definition));
  }
  TensorIntake intake("Variant");
  intake.read(arguments);
  std::vector<TensorView> views;
  for (const TensorArgument& argument : arguments) views.push_back(argument.view);
  for (py::object& owner : intake.release_owners()) owners.push_back(std::move(owner));
  return {self.variant.bind(std::move(scalars), std::move(views)), std::move(owners)};
}

std::string digest_text(const Variant& variant) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx",
                static_cast<unsigned long long>(variant.digest()[0]),
                static_cast<unsigned long long>(variant.digest()[1]));
  return text;
}

}  // namespace

void register_variant(py::module_& module) {
  py::class_<PyBoundVariant>(module, "BoundVariant", kBoundVariantDoc)
      .def_property_readonly("name", [](const PyBoundVariant& self) {
        return self.bound.variant().definition().name;
      });
  py::class_<PyVariant>(module, "Variant", kVariantDoc)
      .def(py::init(&make_variant), py::arg("name"), py::kw_only(), py::arg("params") = py::none(),
           py::arg("tensors") = py::none(), py::arg("logits") = py::none(),
           py::arg("mask") = py::none(), py::arg("file") = py::none())
      .def("__call__", &bind)
      .def_property_readonly("name",
                             [](const PyVariant& self) { return self.variant.definition().name; })
      .def_property_readonly("digest",
                             [](const PyVariant& self) { return digest_text(self.variant); })
      .def("__repr__", [](const PyVariant& self) {
        return "<kiln.jit.Variant \"" + self.variant.definition().name + "\" (" +
               expected_names(self.variant.definition()) + ")>";
      });
}

const BoundVariant* variant_argument(PyObject* object, Subject subject) {
  if (!is_given(object)) return nullptr;
  const py::handle handle(object);
  if (py::isinstance<PyBoundVariant>(handle)) return &py::cast<PyBoundVariant&>(handle).bound;
  if (!py::isinstance<PyVariant>(handle)) {
    throw_type(subject, "must be a jit.Variant with its values bound, such as v(cap=30.0), got " +
                            type_name(object));
  }
  const PyVariant& variant = py::cast<PyVariant&>(handle);
  if (!variant.without_values) {
    const VariantDefinition& definition = variant.variant.definition();
    throw_value(subject, "\"" + definition.name + "\" needs its values: pass variant=v(...) with " +
                             expected_names(definition));
  }
  return &variant.without_values->bound;
}

}  // namespace kiln::python
