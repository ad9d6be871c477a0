// What can be told of a cubin before the driver reads it.
#pragma once

#include <string>
#include <string_view>

namespace kiln::runtime {

// Empty when `cubin` is a whole ELF file; else what is wrong with it. cuLibraryLoadData takes no
// size and reads past the end of a truncated image.
std::string cubin_problem(std::string_view cubin);

}  // namespace kiln::runtime
