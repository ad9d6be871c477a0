// What runs ahead of a kernel that is launched programmatically.
#pragma once

#include <span>

#include "runtime/device.h"

namespace kiln::testing {

// Launches a kernel that reads and writes every byte of the spans and changes none. A programmatic
// launch behind it must wait before it accesses this memory, as it may still run.
void launch_earlier(runtime::Device& device, std::span<const runtime::MemorySpan> spans);

}  // namespace kiln::testing
