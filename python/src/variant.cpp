// jit.Variant in Python.
#include "variant.h"

#include <string>

#include "arguments.h"
#include "docstrings.h"
#include "errors.h"
#include "instance.h"
#include "jit/op/json_text.h"
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

PyVariant new_variant(VariantDefinition definition) {
  PyVariant variant{Variant(std::move(definition)), std::nullopt};
  const VariantDefinition& checked = variant.variant.definition();
  if (checked.params.empty() && checked.tensors.empty()) {
    variant.without_values = PyBoundVariant{variant.variant.bind({}, {}), {}, {}};
  }
  return variant;
}

PyVariant make_variant(const py::object& name, const py::object& params, const py::object& tensors,
                       const py::object& logits, const py::object& mask, const py::object& file) {
  VariantDefinition definition;
  definition.name = required_text(name, "name");
  for (const auto& [key, type] : declarations(params, "params")) {
    definition.params.push_back(parse_param_declaration(key, type));
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
  return new_variant(std::move(definition));
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

// What a bound variant keeps as its tensor. Like its memory, it must not change when the tensor is
// given other memory.
py::object kept_tensor(const TensorArgument& argument) {
  const auto tensor = py::reinterpret_borrow<py::object>(argument.object);
  if (argument.framework.is_torch) return tensor.attr("detach")();
  if (argument.framework.transport == Transport::cupy) return tensor.attr("view")();
  return tensor;
}

// Takes the values out of the dict.
PyBoundVariant bind_values(const Variant& variant, py::dict values) {
  const VariantDefinition& definition = variant.definition();
  std::vector<double> scalars;
  for (const VariantParam& param : definition.params) {
    scalars.push_back(param_value(take_value(values, param.name, definition), param));
  }
  std::vector<py::object> given;
  std::vector<TensorArgument> arguments;
  for (const VariantTensor& tensor : definition.tensors) {
    given.push_back(take_value(values, tensor.name, definition));
    arguments.push_back({.name = tensor.name.c_str(), .object = given.back().ptr()});
    if (given.back().is_none()) throw_type({"Variant", tensor.name.c_str()}, "must be a tensor");
  }
  if (!values.empty()) {
    throw py::type_error("Variant '" + definition.name + "': no parameter or tensor " +
                         py::cast<std::string>(py::repr(py::list(values)[0])) + "; it takes " +
                         expected_names(definition));
  }
  TensorIntake intake("Variant", HostArrays::refused, Needed::longer);
  intake.read(arguments);
  std::vector<TensorView> views;
  std::vector<py::object> tensors;
  for (const TensorArgument& argument : arguments) {
    views.push_back(argument.view);
    tensors.push_back(kept_tensor(argument));
  }
  return {variant.bind(std::move(scalars), std::move(views)), std::move(tensors),
          intake.release_owners()};
}

PyVariant& variant_of(py::handle self) { return object_of<PyVariant>(self, "Variant"); }
PyBoundVariant& bound_of(py::handle self) {
  return object_of<PyBoundVariant>(self, "BoundVariant");
}

PyBoundVariant bind(const py::object& self, const py::args& args, const py::kwargs& kwargs) {
  const Variant& variant = variant_of(self).variant;
  if (!args.empty()) {
    throw py::type_error("Variant: values are passed by name: " +
                         expected_names(variant.definition()));
  }
  return bind_values(variant, kwargs.attr("copy")());
}

// What pickle and copy.deepcopy keep of a variant: its definition as text, and its file's label.
py::tuple state_of_variant(const py::object& self) {
  const VariantDefinition& definition = variant_of(self).variant.definition();
  return py::make_tuple(variant_to_json(definition).dump(), definition.file_name);
}
PyVariant variant_from_state(const py::tuple& state) {
  if (state.size() != 2)
    throw py::value_error("Variant: this is not what a Variant was pickled to");
  const std::string text(string_argument(state[0].ptr(), {"Variant", "state"}));
  const JsonText json = parse_json(text);
  if (!json.value) throw py::value_error("Variant: a pickled definition " + json.fault);
  VariantDefinition definition = variant_from_json(*json.value);
  definition.file_name = string_argument(state[1].ptr(), {"Variant", "state"});
  return new_variant(std::move(definition));
}

// Of a bound variant: the variant, and its values and tensors by name.
py::tuple state_of_bound(const py::object& self) {
  const PyBoundVariant& bound = bound_of(self);
  const VariantDefinition& definition = bound.bound.variant().definition();
  py::dict values;
  for (std::size_t i = 0; i < definition.params.size(); ++i) {
    const double value = bound.bound.values()[i];
    const bool is_whole = definition.params[i].dtype == DType::i32;
    values[py::str(definition.params[i].name)] =
        is_whole ? py::object(py::int_(static_cast<std::int64_t>(value)))
                 : py::object(py::float_(value));
  }
  for (std::size_t i = 0; i < definition.tensors.size(); ++i) {
    values[py::str(definition.tensors[i].name)] = bound.tensors[i];
  }
  return py::make_tuple(py::cast(new_variant(VariantDefinition(definition))), values);
}
PyBoundVariant bound_from_state(const py::tuple& state) {
  if (state.size() != 2 || !py::isinstance<PyVariant>(state[0]) ||
      !py::isinstance<py::dict>(state[1])) {
    throw py::value_error("BoundVariant: this is not what a BoundVariant was pickled to");
  }
  return bind_values(variant_of(state[0]).variant, state[1].attr("copy")());
}

// PyTorch's operators take these for a bound variant: its definition as a spec's text, and its
// values and tensors in order.
py::tuple parts_of_bound(const py::object& self) {
  const PyBoundVariant& bound = bound_of(self);
  return py::make_tuple(variant_to_json(bound.bound.variant().definition()).dump(),
                        py::tuple(py::cast(bound.bound.values())),
                        py::tuple(py::cast(bound.tensors)));
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
      .def(py::pickle(&state_of_bound, &bound_from_state))
      .def_property_readonly(
          "name",
          [](const py::object& self) { return bound_of(self).bound.variant().definition().name; })
      .def_property_readonly("_parts", &parts_of_bound);
  py::class_<PyVariant>(module, "Variant", kVariantDoc)
      .def(py::init(&make_variant), py::arg("name"), py::kw_only(), py::arg("params") = py::none(),
           py::arg("tensors") = py::none(), py::arg("logits") = py::none(),
           py::arg("mask") = py::none(), py::arg("file") = py::none())
      .def("__call__", &bind)
      .def(py::pickle(&state_of_variant, &variant_from_state))
      .def_property_readonly(
          "name", [](const py::object& self) { return variant_of(self).variant.definition().name; })
      .def_property_readonly("_text",
                             [](const py::object& self) {
                               return variant_to_json(variant_of(self).variant.definition()).dump();
                             })
      .def_property_readonly(
          "digest", [](const py::object& self) { return digest_text(variant_of(self).variant); })
      .def("__repr__", [](const py::object& self) {
        const VariantDefinition& definition = variant_of(self).variant.definition();
        return "<kiln.jit.Variant \"" + definition.name + "\" (" + expected_names(definition) +
               ")>";
      });
}

namespace {

const BoundVariant* one_variant(py::handle handle, Subject subject) {
  if (py::isinstance<PyBoundVariant>(handle)) return &bound_of(handle).bound;
  // kiln.operators' TracedVariant, which is bound to tensors that PyTorch traces with.
  if (py::hasattr(handle, "_parts")) {
    throw TracedTensorError(
        "a variant that was bound while PyTorch traced cannot be computed with");
  }
  if (!py::isinstance<PyVariant>(handle)) {
    throw_type(subject, "must be a jit.Variant with its values bound, such as v(cap=30.0), got " +
                            type_name(handle.ptr()));
  }
  const PyVariant& variant = variant_of(handle);
  if (!variant.without_values) {
    const VariantDefinition& definition = variant.variant.definition();
    throw_value(subject, "\"" + definition.name + "\" needs its values: pass variant=v(...) with " +
                             expected_names(definition));
  }
  return &variant.without_values->bound;
}

}  // namespace

const BoundVariant* variant_argument(PyObject* object, Subject subject,
                                     std::optional<BoundVariant>& composed) {
  if (!is_given(object)) return nullptr;
  if (!PyList_Check(object) && !PyTuple_Check(object)) return one_variant(object, subject);
  std::vector<BoundVariant> list;
  for (const py::handle one : py::reinterpret_borrow<py::sequence>(object)) {
    list.push_back(*one_variant(one, subject));
  }
  if (list.empty()) return nullptr;
  composed = compose(list);
  return &*composed;
}

}  // namespace kiln::python
