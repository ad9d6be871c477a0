// Prints the warpgroup matrix products that a kernel uses: the operand list of inline assembly, one
// register for each accumulator, cannot come from a template parameter.
#pragma once

#include <string>

#include "jit/op/names.h"

namespace kiln {

// struct Products: one K-tile of 128 bytes times an n-column tile by a warpgroup.
struct WgmmaShape {
  DType a, b;
  int n;
  Major major_rows, major_columns;
};
std::string render_wgmma(const WgmmaShape& shape);

}  // namespace kiln
