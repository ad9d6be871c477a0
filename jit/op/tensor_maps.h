// Tensor maps for the tensor memory accelerator, remembered between calls.
#pragma once

#include "runtime/device.h"

namespace kiln {

// The map of `spec` on `device`. The reference lives until this thread's next call: its slot may
// then be another's. Throws runtime::DeviceError.
const runtime::TensorMap& remembered_map(const runtime::TensorMapSpec& spec,
                                         runtime::Device& device);

}  // namespace kiln
