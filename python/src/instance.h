// The C++ object behind a Python instance of one of our classes.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace kiln::python {

// `Class.__new__(Class)` makes an instance without its C++ object, for which pybind11 would hand
// out memory that was never initialised. Throws TypeError for such an instance. `name` is the
// class's name, for the message.
template <class Object>
Object& object_of(pybind11::handle instance, const char* name) {
  auto* const self = reinterpret_cast<pybind11::detail::instance*>(instance.ptr());
  if (!self->get_value_and_holder().holder_constructed()) {
    throw pybind11::type_error(std::string(name) +
                               ": this object was made by __new__ alone and holds nothing; call "
                               "the class instead");
  }
  return pybind11::cast<Object&>(instance);
}

}  // namespace kiln::python
