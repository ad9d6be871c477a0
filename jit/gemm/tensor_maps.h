// The argument block of the sm_90a GEMM kernels.
#pragma once

#include <cstddef>
#include <span>

#include "jit/op/family.h"

namespace kiln {

// `arguments` begin with GemmParams; writes them behind tensor maps of what they point to, as the
// kernel's tile wants them: GemmSm90Params. Throws runtime::DeviceError.
std::span<const std::byte> pack_gemm_sm90(const CallArguments& arguments,
                                          const Specialization& spec, runtime::Device& device,
                                          ParameterBlock& block);

}  // namespace kiln
