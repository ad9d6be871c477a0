// A cubin as an ELF file: its check before the driver reads it, and its sections.
#pragma once

#include <string>
#include <string_view>

namespace kiln::runtime {

// Empty if `cubin` is a complete ELF file, else what is wrong with it. cuLibraryLoadData takes no
// size and reads past the end of a truncated image.
std::string cubin_problem(std::string_view cubin);

// The bytes of the first section of that name, a part of `cubin`; none where there is no such
// section, it has no bytes, or the cubin has a problem.
std::string_view cubin_section(std::string_view cubin, std::string_view name);

}  // namespace kiln::runtime
