// Tensor maps: descriptors by which the tensor memory accelerator (9.0 and newer) copies boxes.
#pragma once

#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace kiln::runtime {

// Throws std::invalid_argument, one sentence, when the hardware could not address `spec`.
void check_tensor_map(const TensorMapSpec& spec);

// Checks and encodes. Needs a current context.
TensorMap encode_tensor_map(const DriverTable& driver, const TensorMapSpec& spec);

}  // namespace kiln::runtime
