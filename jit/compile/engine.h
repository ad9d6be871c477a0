// The kernels of this process: what jit/op/kernels.h declares, and the questions about it. The flow
// of design and docs/architecture.md stands there.
#pragma once

#include <cstddef>

#include "jit/op/kernels.h"

namespace kiln {

bool is_resident(const Specialization& spec, const runtime::Device& device);

std::size_t resident_count();

}  // namespace kiln
