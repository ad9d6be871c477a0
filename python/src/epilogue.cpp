// jit.Epilogue in Python.
#include "epilogue.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "arguments.h"
#include "docstrings.h"
#include "errors.h"
#include "instance.h"
#include "jit/op/json_text.h"
#include "jit/op/variant_json.h"

namespace kiln::python {
namespace {

constexpr const char* kKind = "Epilogue";

struct PyBoundEpilogue {
  BoundEpilogue bound;
  std::vector<py::object> tensors;  // what was bound, in the declarations' order
  std::vector<py::object> exports;  // own the memory
};

struct PyEpilogue {
  Epilogue epilogue;
  std::optional<PyBoundEpilogue> without_values;  // when there is nothing to bind
};

PyEpilogue new_epilogue(EpilogueDefinition definition) {
  PyEpilogue made{Epilogue(std::move(definition)), std::nullopt};
  const EpilogueDefinition& checked = made.epilogue.definition();
  if (checked.params.empty() && checked.tensors.empty()) {
    made.without_values = PyBoundEpilogue{made.epilogue.bind({}, {}), {}, {}};
  }
  return made;
}

PyEpilogue make_epilogue(const py::args& args, const py::kwargs& keywords) {
  static constexpr const char* kNames[] = {"name", "value", "params", "tensors"};
  static const Parameters parameters(kKind, 1, 2, kNames);
  const std::vector<py::object> given = parameters.parse(args, keywords);
  const py::object &name = given[0], &value = given[1], &params = given[2], &tensors = given[3];
  EpilogueDefinition definition;
  definition.name = required_text(kKind, name, "name");
  for (const auto& [key, type] : declarations(kKind, params, "params")) {
    definition.params.push_back(parse_param_declaration(key, type, kEpilogueDeclaration));
  }
  for (const auto& [key, text] : declarations(kKind, tensors, "tensors")) {
    definition.tensors.push_back(parse_tensor_declaration(key, text, kEpilogueDeclaration));
  }
  definition.value = required_text(kKind, value, "value");
  return new_epilogue(std::move(definition));
}

Declared declared_by(const EpilogueDefinition& d) { return {kKind, d.name, d.params, d.tensors}; }

PyEpilogue& epilogue_of(py::handle self) { return object_of<PyEpilogue>(self, kKind); }
PyBoundEpilogue& bound_of(py::handle self) {
  return object_of<PyBoundEpilogue>(self, "BoundEpilogue");
}
const EpilogueDefinition& definition_of(py::handle self) {
  return epilogue_of(self).epilogue.definition();
}

PyBoundEpilogue bind_values(const Epilogue& epilogue, py::dict values) {
  BoundValues bound = take_values(declared_by(epilogue.definition()), std::move(values));
  return {epilogue.bind(std::move(bound.scalars), std::move(bound.views)), std::move(bound.tensors),
          std::move(bound.exports)};
}

PyBoundEpilogue bind(const py::object& self, const py::args& args, const py::kwargs& kwargs) {
  const Epilogue& epilogue = epilogue_of(self).epilogue;
  if (!args.empty()) {
    throw py::type_error("Epilogue: values are passed by name: " +
                         expected_names(declared_by(epilogue.definition())));
  }
  return bind_values(epilogue, kwargs.attr("copy")());
}

// What pickle, copy.deepcopy and PyTorch's operators keep of an epilogue: its definition as text.
std::string text_of(const EpilogueDefinition& definition) {
  return epilogue_to_json(definition).dump();
}

PyEpilogue epilogue_from_state(const py::tuple& state) {
  if (state.size() != 1) {
    throw py::value_error("Epilogue: this is not what an Epilogue was pickled to");
  }
  const std::string text(string_argument(state[0].ptr(), {kKind, "state"}));
  const JsonText json = parse_json(text);
  if (!json.value) throw py::value_error("Epilogue: a pickled definition " + json.fault);
  return new_epilogue(epilogue_from_json(*json.value));
}

py::tuple state_of_bound(const py::object& self) {
  const PyBoundEpilogue& bound = bound_of(self);
  const EpilogueDefinition& definition = bound.bound.epilogue().definition();
  return py::make_tuple(
      py::cast(new_epilogue(EpilogueDefinition(definition))),
      values_by_name(declared_by(definition), bound.bound.values(), bound.tensors));
}
PyBoundEpilogue bound_from_state(const py::tuple& state) {
  if (state.size() != 2 || !py::isinstance<PyEpilogue>(state[0]) ||
      !py::isinstance<py::dict>(state[1])) {
    throw py::value_error("BoundEpilogue: this is not what a BoundEpilogue was pickled to");
  }
  return bind_values(epilogue_of(state[0]).epilogue, state[1].attr("copy")());
}

py::tuple parts_of_bound(const py::object& self) {
  const PyBoundEpilogue& bound = bound_of(self);
  return py::make_tuple(text_of(bound.bound.epilogue().definition()),
                        py::tuple(py::cast(bound.bound.values())),
                        py::tuple(py::cast(bound.tensors)));
}

const BoundEpilogue* bound_epilogue_of(py::handle handle, Subject subject) {
  if (py::isinstance<PyBoundEpilogue>(handle)) return &bound_of(handle).bound;
  // kiln.operators' TracedEpilogue, which is bound to tensors that PyTorch traces with.
  if (py::hasattr(handle, "_parts")) {
    throw TracedTensorError(
        "an epilogue that was bound while PyTorch traced cannot be computed with");
  }
  if (!py::isinstance<PyEpilogue>(handle)) {
    throw_type(subject,
               "must be a string, or a jit.Epilogue with its values bound, such as e(t=1.5), got " +
                   repr_of(handle.ptr()));
  }
  const PyEpilogue& epilogue = epilogue_of(handle);
  if (!epilogue.without_values) {
    const EpilogueDefinition& definition = epilogue.epilogue.definition();
    throw_value(subject, "\"" + definition.name +
                             "\" needs its values: pass epilogue=e(...) with " +
                             expected_names(declared_by(definition)));
  }
  return &epilogue.without_values->bound;
}

constexpr Subject kEpilogueArgument{"gemm", "epilogue"};

}  // namespace

void register_epilogue(py::module_& module) {
  py::class_<PyBoundEpilogue>(module, "BoundEpilogue", kBoundEpilogueDoc)
      .def(py::pickle(&state_of_bound, &bound_from_state))
      .def_property_readonly(
          "name",
          [](const py::object& self) { return bound_of(self).bound.epilogue().definition().name; })
      .def_property_readonly("_parts", &parts_of_bound);
  py::class_<PyEpilogue> type(module, "Epilogue", kEpilogueDoc);
  def_constructor(type, &make_epilogue, kEpilogueInit);
  type.def("__call__", &bind)
      .def(py::pickle(
          [](const py::object& self) { return py::make_tuple(text_of(definition_of(self))); },
          &epilogue_from_state))
      .def_property_readonly("name",
                             [](const py::object& self) { return definition_of(self).name; })
      .def_property_readonly("_text",
                             [](const py::object& self) { return text_of(definition_of(self)); })
      .def_property_readonly(
          "digest",
          [](const py::object& self) { return digest_text(epilogue_of(self).epilogue.digest()); })
      .def("__repr__", [](const py::object& self) {
        const EpilogueDefinition& definition = definition_of(self);
        return "<kiln.jit.Epilogue \"" + definition.name + "\" (" +
               expected_names(declared_by(definition)) + ")>";
      });
}

EpilogueArgument::EpilogueArgument(PyObject* epilogue, PyObject* params, PyObject* tensors) {
  const bool has_values = is_given(params) || is_given(tensors);
  const bool is_text = !is_given(epilogue) || PyUnicode_Check(epilogue);
  if (!is_text) {
    object_ = bound_epilogue_of(epilogue, kEpilogueArgument);
    if (has_values) {
      throw_value(kEpilogueArgument, "has values of its own; params and tensors are for a string");
    }
    return;
  }
  text_ = string_argument(epilogue, kEpilogueArgument);
  if (!has_values) return;
  if (text_.empty()) {
    throw_value(kEpilogueArgument, "must be given with params or tensors, which it names");
  }
  if (is_given(params)) {
    for (const Named& param : named_values(params, "params")) take_param(param);
  }
  if (is_given(tensors)) tensors_ = named_values(tensors, "tensors");
}

// In the order of the names, so that the order of a dict is of no kernel's identity.
std::vector<EpilogueArgument::Named> EpilogueArgument::named_values(PyObject* dict,
                                                                    const char* argument) {
  const Subject subject{"gemm", argument};
  if (!PyDict_Check(dict)) {
    throw_type(subject, "must be a dict of names to values, got " + repr_of(dict));
  }
  std::vector<Named> list;
  for (auto [key, value] : py::reinterpret_borrow<py::dict>(dict)) {
    if (!PyUnicode_Check(key.ptr())) {
      throw_type(subject, "must have strings as names, got " + repr_of(key.ptr()));
    }
    list.push_back({std::string(string_argument(key.ptr(), subject)),
                    py::reinterpret_borrow<py::object>(value)});
  }
  std::ranges::sort(list, {}, &Named::name);
  return list;
}

// A whole number is an i32, and any other number an f32.
void EpilogueArgument::take_param(const Named& param) {
  const Subject subject{"gemm's epilogue", param.name.c_str()};
  PyObject* const value = param.value.ptr();
  if (param.value.is_none()) throw_type(subject, "must be a number, got None");
  const py::object number = whole_number(value, subject);
  params_.push_back({param.name, number ? DType::i32 : DType::f32});
  values_.push_back(number ? int_argument(number.ptr(), subject)
                           : float_argument(value, 0.0f, subject));
}

void EpilogueArgument::read(TensorIntake& intake, std::span<TensorArgument> arguments) {
  if (tensors_.empty()) return intake.read(arguments);
  arguments_.assign(arguments.begin(), arguments.end());
  for (const Named& tensor : tensors_) {
    arguments_.push_back({.name = tensor.name.c_str(), .object = tensor.value.ptr()});
    if (tensor.value.is_none())
      throw_type({"gemm's epilogue", tensor.name.c_str()}, "must be a tensor");
  }
  intake.read(arguments_);
  std::copy_n(arguments_.begin(), arguments.size(), arguments.begin());
  arguments_.erase(arguments_.begin(),
                   arguments_.begin() + static_cast<std::ptrdiff_t>(arguments.size()));
}

EpilogueDefinition EpilogueArgument::definition() const {
  EpilogueDefinition definition;
  definition.name = "epilogue";
  definition.params = params_;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorView& view = arguments_[i].view;
    definition.tensors.push_back(
        {tensors_[i].name, view.dtype,
         std::vector<std::string>(static_cast<std::size_t>(view.rank), "*")});
  }
  definition.value = text_;
  return definition;
}

void EpilogueArgument::set(GemmOptions& options) {
  options.bound_epilogue = object_;
  if (object_ != nullptr) return;
  if (params_.empty() && tensors_.empty()) {
    options.epilogue = text_;
    return;
  }
  // The last one of this thread: a serving loop passes the same names and types on every call.
  thread_local std::optional<Epilogue> last;
  EpilogueDefinition wanted = definition();
  if (!last || !(last->definition() == wanted)) last.emplace(std::move(wanted));
  std::vector<TensorView> views;
  for (const TensorArgument& argument : arguments_) views.push_back(argument.view);
  bound_ = last->bind(values_, std::move(views));
  options.bound_epilogue = &*bound_;
}

}  // namespace kiln::python
