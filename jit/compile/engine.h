// The kernels that this process has loaded. jit/op/kernels.h declares how a launch gets its kernel,
// and engine.cpp defines it; docs/architecture.md describes the order of the steps. This header
// adds questions about loaded kernels.
#pragma once

#include <cstddef>

#include "jit/op/kernels.h"

namespace kiln {

bool is_resident(const Specialization& spec, const runtime::Device& device);

std::size_t resident_count();

}  // namespace kiln
