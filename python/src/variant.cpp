// jit.Variant in Python.
#include "variant.h"

#include <pybind11/stl.h>

#include <string>

#include "arguments.h"
#include "bound_values.h"
#include "docstrings.h"
#include "errors.h"
#include "instance.h"
#include "jit/op/json_text.h"
#include "jit/op/variant_json.h"

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

PyVariant new_variant(VariantDefinition definition) {
  PyVariant variant{Variant(std::move(definition)), std::nullopt};
  const VariantDefinition& checked = variant.variant.definition();
  if (checked.params.empty() && checked.tensors.empty()) {
    variant.without_values = PyBoundVariant{variant.variant.bind({}, {}), {}, {}, {}};
  }
  return variant;
}

PyVariant make_variant(const py::args& args, const py::kwargs& keywords) {
  static constexpr const char* kNames[] = {"name", "params", "tensors", "logits", "mask", "file"};
  static const Parameters parameters("Variant", 1, 1, kNames);
  const std::vector<py::object> given = parameters.parse(args, keywords);
  const py::object &name = given[0], &params = given[1], &tensors = given[2], &logits = given[3],
                   &mask = given[4], &file = given[5];
  VariantDefinition definition;
  definition.name = required_text("Variant", name, "name");
  for (const auto& [key, type] : declarations("Variant", params, "params")) {
    definition.params.push_back(parse_param_declaration(key, type));
  }
  for (const auto& [key, text] : declarations("Variant", tensors, "tensors")) {
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

Declared declared_by(const VariantDefinition& d) {
  return {"Variant", d.name, d.params, d.tensors};
}

// Takes the values out of the dict.
PyBoundVariant bind_values(const Variant& variant, py::dict values) {
  BoundValues bound = take_values(declared_by(variant.definition()), std::move(values));
  return {variant.bind(std::move(bound.scalars), std::move(bound.views)),
          std::move(bound.tensors),
          std::move(bound.exports),
          {}};
}

PyVariant& variant_of(py::handle self) { return object_of<PyVariant>(self, "Variant"); }
PyBoundVariant& bound_of(py::handle self) {
  return object_of<PyBoundVariant>(self, "BoundVariant");
}

PyBoundVariant bind(const py::object& self, const py::args& args, const py::kwargs& kwargs) {
  const Variant& variant = variant_of(self).variant;
  if (!args.empty()) {
    throw py::type_error("Variant: values are passed by name: " +
                         expected_names(declared_by(variant.definition())));
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
  const py::dict values =
      values_by_name(declared_by(definition), bound.bound.values(), bound.tensors);
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

// Python draws: docs/variants.md shows a picture.
py::object plot(const py::object& self, const py::args& args, const py::kwargs& kwargs) {
  return py::module_::import("kiln._variant_plot").attr("plot")(self, *args, **kwargs);
}

}  // namespace

void register_variant(py::module_& module) {
  py::class_<PyBoundVariant>(module, "BoundVariant", kBoundVariantDoc)
      .def(py::pickle(&state_of_bound, &bound_from_state))
      .def_property_readonly(
          "name",
          [](const py::object& self) { return bound_of(self).bound.variant().definition().name; })
      .def("plot", &plot, kPlotDoc)
      .def_property_readonly("_parts", &parts_of_bound);
  py::class_<PyVariant> type(module, "Variant", kVariantDoc);
  def_constructor(type, &make_variant, kVariantInit);
  type.def("__call__", &bind)
      .def("plot", &plot, kPlotDoc)
      .def(py::pickle(&state_of_variant, &variant_from_state))
      .def_property_readonly(
          "name", [](const py::object& self) { return variant_of(self).variant.definition().name; })
      .def_property_readonly("_text",
                             [](const py::object& self) {
                               return variant_to_json(variant_of(self).variant.definition()).dump();
                             })
      .def_property_readonly(
          "digest",
          [](const py::object& self) { return digest_text(variant_of(self).variant.digest()); })
      .def("__repr__", [](const py::object& self) {
        const VariantDefinition& definition = variant_of(self).variant.definition();
        return "<kiln.jit.Variant \"" + definition.name + "\" (" +
               expected_names(declared_by(definition)) + ")>";
      });
}

namespace {

PyBoundVariant& one_variant(py::handle handle, Subject subject) {
  if (py::isinstance<PyBoundVariant>(handle)) return bound_of(handle);
  // kiln.operators' TracedVariant, which is bound to tensors that PyTorch traces with.
  if (py::hasattr(handle, "_parts")) {
    throw TracedTensorError(
        "a variant that was bound while PyTorch traced cannot be computed with");
  }
  if (!py::isinstance<PyVariant>(handle)) {
    throw_type(subject, "must be a jit.Variant with its values bound, such as v(cap=30.0), got " +
                            type_name(handle.ptr()));
  }
  PyVariant& variant = variant_of(handle);
  if (!variant.without_values) {
    const VariantDefinition& definition = variant.variant.definition();
    throw_value(subject, "\"" + definition.name + "\" needs its values: pass variant=v(...) with " +
                             expected_names(declared_by(definition)));
  }
  return *variant.without_values;
}

bool is_known(const KnownList& known, const py::sequence& list) {
  if (known.composed == nullptr || known.others.size() + 1 != list.size()) return false;
  for (std::size_t i = 0; i < known.others.size(); ++i) {
    if (!known.others[i].is(py::object(list[i + 1]).ptr())) return false;
  }
  return true;
}

std::shared_ptr<const BoundVariant> composed_of(const py::sequence& list, Subject subject) {
  PyBoundVariant& first = one_variant(list[0], subject);
  if (is_known(first.list, list)) return first.list.composed;
  std::vector<BoundVariant> bound;
  std::vector<KnownObject> others;
  for (const py::handle one : list) {
    bound.push_back(one_variant(one, subject).bound);
    if (bound.size() > 1) others.emplace_back(weak_reference(one));
  }
  first.list = {std::move(others), std::make_shared<const BoundVariant>(compose(bound))};
  return first.list.composed;
}

}  // namespace

const BoundVariant* variant_argument(PyObject* object, Subject subject,
                                     std::shared_ptr<const BoundVariant>& composed) {
  if (!is_given(object)) return nullptr;
  if (!PyList_Check(object) && !PyTuple_Check(object)) return &one_variant(object, subject).bound;
  const auto list = py::reinterpret_borrow<py::sequence>(object);
  if (list.empty()) return nullptr;
  composed = composed_of(list, subject);
  return composed.get();
}

}  // namespace kiln::python
