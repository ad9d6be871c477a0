// The template sources: embedded, or read from KILN_TEMPLATE_DIR at first use.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "jit/compile/compiler.h"

namespace kiln {

// Every file of templates/, by virtual name ("/kiln/base/types.cuh"). The texts live as long as the
// process. Throws std::invalid_argument when KILN_TEMPLATE_DIR is not a folder of templates.
std::span<const SourceFile> template_files();

// The files that `source` includes, directly or not, sorted by name. Includes are the lines
// `#include "/kiln/…"`; one of an unknown file is left to the compiler to report.
std::vector<SourceFile> included_files(std::string_view source);

}  // namespace kiln
