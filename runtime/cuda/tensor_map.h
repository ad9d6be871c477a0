// Tensor maps: descriptors by which the tensor memory accelerator (9.0 and newer) copies boxes.
#pragma once

#include "runtime/cuda/driver.h"
#include "runtime/device.h"

namespace kiln::runtime {

// Checks (tensor_map_rules.h) and encodes. Needs a current context.
TensorMap encode_tensor_map(const DriverTable& driver, const TensorMapSpec& spec);

}  // namespace kiln::runtime
