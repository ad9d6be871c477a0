// Rows in groups: the checks of what a call says of them, and the bounds that the host has of what
// the device alone knows, how many rows each group has.
#pragma once

#include "jit/gemm/config.h"

namespace kiln {

// How the rows of a, and of the output, belong to the matrices of b, and the tensor that tells.
struct CheckedGroups {
  Grouping grouping = Grouping::none;
  const TensorView* rows = nullptr;
};

// Throws std::invalid_argument or TypeError.
CheckedGroups check_groups(const TensorView& a, const TensorView& b, const GemmOptions& options,
                           const GemmProblem& problem);

// The sizes by which a tile is chosen: those of the problem or, of rows in groups, of as many
// groups as can have rows, each with as many as are expected or as they have on average.
GemmExtent extent_of(const GemmProblem& problem);

// How many tiles of these rows and columns of b the launch can have at most.
long long most_tiles(const GemmProblem& problem, int block_m, int block_n);

}  // namespace kiln
