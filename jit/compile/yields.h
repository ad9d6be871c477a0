// Sets where warps yield in the machine code of sm_90a. docs/performance/yields.md has what it
// brings.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "jit/op/yields.h"

namespace kiln {

// The rules as text, for the key of a kernel; "" without rules.
std::string text_of(std::span<const YieldRule> rules);

// Changes the code of kernel `entry` in a cubin of sm_90a by the rules. What an instruction
// computes stays the same. Returns "" or, with nothing changed, a warning: that the cubin is not an
// ELF file with a section .text.<entry> of whole instructions.
std::string set_yields(std::string& cubin, std::string_view entry,
                       std::span<const YieldRule> rules);

}  // namespace kiln
