// __cuda_array_interface__ (versions 2 and 3): CuPy, Numba and others without DLPack; and NumPy's
// __array_interface__, which has bfloat16 where NumPy's DLPack has not.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "tensor.h"

namespace kiln::python {

struct ArrayInterface {
  DlTensor tensor{};  // shape and strides are null: they are the arrays below
  std::array<std::int64_t, kMaxRank> shape{}, strides{};
  std::optional<void*> stream;  // the producer's, when it named one
};

ArrayInterface read_interface(const TensorArgument& argument, const char* op);

}  // namespace kiln::python
