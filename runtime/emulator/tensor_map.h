// The emulated device's tensor maps: 128 bytes of its own encoding.
#pragma once

#include "runtime/device.h"

namespace kiln::runtime::emulator {

// Throws std::invalid_argument for what cuTensorMapEncodeTiled would refuse.
TensorMap encode_emulated_tensor_map(const TensorMapSpec& spec);

}  // namespace kiln::runtime::emulator
