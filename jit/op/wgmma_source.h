// Prints the warpgroup matrix products that a kernel uses: the operand list of inline assembly, one
// register for each accumulator, cannot come from a template parameter.
#pragma once

#include <cstdint>
#include <string>

#include "jit/op/names.h"

namespace kiln {

// Slabs; or, for a single step of which both halves are the same, 16 bytes a row; or eight such
// rows that are repeated.
enum class RowsInMemory : std::uint8_t { slabs, short_rows, eight_rows };

// One struct: `k_steps` steps of 32 bytes of K, by a warpgroup, of 64 rows times n columns.
// Operands in shared memory lie in slabs of 128 bytes of K (wgmma.cuh); the slab of the next four
// steps of a lies `slab_a` bytes on. With a_in_registers, a is the warpgroup's own accumulators,
// rounded and packed in their order.
struct WgmmaShape {
  DType a, b;
  int n;
  Major major_rows, major_columns;
  const char* name = "Products";
  int k_steps = 4;
  int slab_a = 0, slab_b = 0;  // read where there are more than four steps
  bool a_in_registers = false;
  // Operands are given by the low words of their descriptors, which takes half the arithmetic.
  bool low_words = false;
  RowsInMemory rows_a = RowsInMemory::slabs, rows_b = RowsInMemory::slabs;  // with low_words
};
std::string render_wgmma(const WgmmaShape& shape);

}  // namespace kiln
