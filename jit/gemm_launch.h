// The argument block of the sm_90a GEMM kernels.
#pragma once

#include "jit/call_arguments.h"
#include "jit/specialization.h"
#include "runtime/device.h"
#include "templates/gemm/params.h"

namespace kiln {

// `arguments` begin with GemmParams; adds tensor maps of what they point to, as the kernel's tile
// wants them. Throws runtime::DeviceError.
GemmSm90Params<runtime::TensorMap> with_tensor_maps(const CallArguments& arguments,
                                                    const Specialization& spec,
                                                    runtime::Device& device);

}  // namespace kiln
