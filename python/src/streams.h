// The current stream of each framework, and what its arrays say about theirs.
#pragma once

#include "tensor.h"

namespace kiln::python {

// PyTorch's, CuPy's or an exchange table's current stream on a device.
void* current_stream(const Framework& framework, int device_ordinal);

// True when the framework has a current stream of its own, which the work then goes to.
inline bool has_current_stream(const Framework& framework) {
  return framework.transport == Transport::exchange || framework.transport == Transport::torch ||
         framework.transport == Transport::cupy;
}

// CUDA's handle of the default stream that DLPack and __cuda_array_interface__ call 1.
inline constexpr std::intptr_t kLegacyStream = 1;

// A tensor's device through __dlpack_device__, as (DLPack device type, ordinal).
DlDevice dlpack_device(PyObject* object);

}  // namespace kiln::python
