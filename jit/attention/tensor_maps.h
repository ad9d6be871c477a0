// The argument block of the sm_90a attention kernels.
#pragma once

#include <cstddef>
#include <span>

#include "jit/op/family.h"

namespace kiln {

// `arguments` begin with AttentionParams; writes them behind tensor maps of q, k, v and out:
// AttentionSm90Args. Those of calls over sequences begin with AttentionVarlenParams, and become
// AttentionSm90VarlenArgs. Throws runtime::DeviceError.
std::span<const std::byte> pack_attention_sm90(const CallArguments& arguments,
                                               const Specialization& spec, runtime::Device& device,
                                               ParameterBlock& block);

}  // namespace kiln
