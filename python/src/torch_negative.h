// PyTorch's negative bit: set on a view whose values PyTorch negates when it reads them, such as
// the imaginary part of a conjugate. The memory holds the values before that.
#pragma once

#include <pybind11/pybind11.h>

namespace kiln::python {

// Whether the bit of one tensor object is set.
using IsNegative = bool(PyObject* tensor);

// The quickest test that this PyTorch allows. Throws what PyTorch raises. Under the GIL.
IsNegative* find_negative_test();

}  // namespace kiln::python
