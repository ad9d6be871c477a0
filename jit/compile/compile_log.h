// Reads what ptxas says about one kernel (--ptxas-options=-v) from NVRTC's log.
#pragma once

#include <optional>
#include <string_view>

#include "jit/compile/compiler.h"

namespace kiln {

// Nothing when the log does not mention a kernel of that name. Spills and local memory of
// functions that were not inlined count as the kernel's. Warnings are those of the whole log.
std::optional<ResourceUse> parse_compile_log(std::string_view log, std::string_view entry);

}  // namespace kiln
