// Arguments of the raw C entries: vectorcall keywords into slots, and scalars with clear errors.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "frameworks.h"
#include "kiln/tensor.h"

namespace kiln::python {

// The parameters of one function: `positional` of them first, the rest keyword-only.
class Parameters {
 public:
  Parameters(const char* function, int positional, int required,
             std::span<const char* const> names);

  static constexpr int kMost = 48;

  // Borrowed references into `slots`, null where not given. Throws TypeError as Python would.
  void parse(PyObject* const* args, Py_ssize_t count, PyObject* keywords, PyObject** slots) const;
  // Likewise, of a constructor's arguments as pybind hands them over; None where not given.
  std::vector<pybind11::object> parse(const pybind11::args& args,
                                      const pybind11::kwargs& keywords) const;

 private:
  int find(PyObject* keyword) const;

  const char* function_;
  int positional_, required_, size_;
  std::array<PyObject*, kMost> names_{};  // interned, never freed
};

// A constructor that parses its arguments itself, with the signature that help() shows.
template <class Class, class Make>
void def_constructor(Class& type, Make make, const char* signature) {
  pybind11::options options;
  options.disable_function_signatures();  // pybind's own would be (*args, **kwargs)
  type.def(pybind11::init(make), signature);
}

// The arguments of one call by their slots, null where not given.
template <class Signature>
std::array<PyObject*, Signature::kSlots> slots_of(PyObject* const* args, Py_ssize_t count,
                                                  PyObject* keywords) {
  static_assert(Signature::kSlots <= Parameters::kMost);
  static const Parameters parameters(Signature::kOp, Signature::kPositional, Signature::kRequired,
                                     Signature::kNames);
  std::array<PyObject*, Signature::kSlots> slots{};
  parameters.parse(args, count, keywords, slots.data());
  return slots;
}

// Python's repr, cut to 80 bytes; the type's name where there is none.
std::string repr_of(PyObject* object);

inline bool is_given(PyObject* object) { return object != nullptr && object != Py_None; }

// Whether an argument that may be a flag or a tensor of flags is none of the plain values, right or
// wrong, for which bool_argument() answers.
bool is_no_flag(PyObject* object);

// Null (not given) leaves the default; any other object of the wrong type is a TypeError.
bool bool_argument(PyObject* object, bool otherwise, Subject subject);
float float_argument(PyObject* object, float otherwise, Subject subject);
// Every flag and number of an operation, into the options of the same names; what is not given
// keeps its default.
template <class Signature, class Options>
void read_numbers(const std::array<PyObject*, Signature::kSlots>& slots, Options& options) {
  Signature::each_number(options, [&](typename Signature::Slot slot, auto& option) {
    const Subject subject{Signature::kOp, Signature::kNames[slot]};
    PyObject* const given = slots[slot];
    if constexpr (std::is_same_v<decltype(option), bool&>) {
      option = bool_argument(given, option, subject);
    } else if constexpr (std::is_same_v<decltype(option), float&>) {
      option = float_argument(given, option, subject);
    } else if (is_given(given)) {
      option = float_argument(given, 0, subject);
    }
  });
}

// A view into the str; empty when None or not given.
std::string_view string_argument(PyObject* object, Subject subject);
int int_argument(PyObject* object, Subject subject);
std::int64_t int64_argument(PyObject* object, Subject subject);
// Returns the whole number that an object with __index__ stands for, or none where it has no such
// number, as a bool or a tensor of floats. Refuses symbolic numbers.
py::object whole_number(PyObject* object, Subject subject);

// None or not given is DType::none. Accepts names and the dtype objects of PyTorch, NumPy and CuPy.
DType dtype_argument(PyObject* object, Subject subject);

}  // namespace kiln::python
