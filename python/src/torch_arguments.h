// Values of arguments of the operators torch.ops.kiln.*; generated/torch_*.h take the arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "frameworks.h"
#include "kiln/tensor.h"
#include "torch_abi.h"

namespace kiln::python {

// As Python shows it.
std::string repr_of(const TorchList& list);
std::string repr_of(double value);

// An operator's number as the option that it is; a finite one that does not fit is refused.
float float_number(double value, Subject subject);
std::optional<float> float_number(std::optional<double> value, Subject subject);

// Of PyTorch's own number for a dtype; none where not given.
DType asked_dtype(std::optional<std::int32_t> code, Subject subject);

}  // namespace kiln::python
