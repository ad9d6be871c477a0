// The call that merges partial results, checked: what is baked into its kernel (traits), what
// chooses the config row, and the packed arguments. Every argument error ends in these checks.
#pragma once

#include <cstdint>

#include "jit/op/launch.h"
#include "kiln/merge_states.h"

namespace kiln {

// The kernels are specialised for these properties, as Traits.
struct MergeTraits {
  DType input = DType::bf16;
  DType output = DType::bf16;
  DType sinks = DType::none;
  std::uint8_t reserved_byte = 0;
  std::uint16_t vector = 8;  // elements that an access has of each tensor: 1, 2, 4 or 8
  std::uint8_t reserved[42] = {};

  bool operator==(const MergeTraits&) const = default;
};
static_assert(is_traits<MergeTraits>);

struct MergeProblem : Problem {
  MergeTraits traits;
  int parts = 0, tokens = 0, heads = 0, columns = 0;
  bool has_lse = false;  // to be written, which a head dim of 0 does not change

  MergeProblem() { op = "merge_states"; }
  bool empty() const { return tokens == 0 || heads == 0 || (columns == 0 && !has_lse); }
};

// Fills `problem`. Throws std::invalid_argument or TypeError.
void check_merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                        const TensorView& lse, const MergeStatesOptions& options,
                        MergeProblem& problem);

// Completes the recipe, of one launch.
void resolve(MergeProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const MergeProblem& problem);

}  // namespace kiln
