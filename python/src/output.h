// New tensors in the caller's framework, from its allocator.
#pragma once

#include "tensor.h"

namespace kiln::python {

// Allocates a contiguous tensor of the view's shape, dtype and device in the framework of `like`
// and sets the view's data. Throws TypeError, asking for `argument=`, when the framework has no
// way to allocate.
py::object allocate_like(const TensorArgument& like, TensorView& view, Subject subject);

}  // namespace kiln::python
