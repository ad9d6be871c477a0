// The emulated device's tensor maps: 128 bytes of its own encoding.
#pragma once

#include <optional>

#include "runtime/device.h"

namespace kiln::runtime::emulator {

// Throws std::invalid_argument for what cuTensorMapEncodeTiled would refuse.
TensorMap encode_emulated_tensor_map(const TensorMapSpec& spec);

// Nothing where the bytes are no such map. The geometry may break the rules after
// tensormap.replace.
std::optional<TensorMapSpec> decode_emulated_tensor_map(const TensorMap& map);
// Without checking the rules.
TensorMap pack_emulated_tensor_map(const TensorMapSpec& spec);

}  // namespace kiln::runtime::emulator
