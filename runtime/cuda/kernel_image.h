// Checks a cubin before the driver reads it.
#pragma once

#include <string>
#include <string_view>

namespace kiln::runtime {

// Empty if `cubin` is a complete ELF file, else what is wrong with it. cuLibraryLoadData takes no
// size and reads past the end of a truncated image.
std::string cubin_problem(std::string_view cubin);

}  // namespace kiln::runtime
