// What the hardware's tensor maps can describe: rules that every device's maps keep to.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace kiln::runtime {

// Both throw std::invalid_argument for what is no enumerator.
std::uint32_t element_bytes(TensorMapElement element);
// The inner box may not be wider, in bytes; 0 = no limit.
std::uint32_t swizzle_span(TensorMapSwizzle swizzle);

// Throws std::invalid_argument, one sentence, when the hardware could not address `spec`.
void check_tensor_map(const TensorMapSpec& spec);

}  // namespace kiln::runtime
