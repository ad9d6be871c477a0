// The calls that sort rows by experts and add them up again, checked: what is baked into their
// kernels (traits), and the packed arguments. Every argument error ends in these checks.
#pragma once

#include <cstdint>

#include "jit/op/launch.h"
#include "kiln/moe.h"

namespace kiln {

// The kernels that sort are specialised for these properties, as Traits.
struct PermuteTraits {
  DType index = DType::i32;  // of experts
  std::uint8_t reserved_byte = 0;
  std::uint16_t access = 16;  // bytes of an access to rows: 1, 2, 4, 8 or 16
  std::uint8_t reserved[44] = {};

  bool operator==(const PermuteTraits&) const = default;
};
static_assert(is_traits<PermuteTraits>);

struct PermuteProblem : Problem {
  PermuteTraits traits;
  int tokens = 0, top_k = 0, num_experts = 0, row_bytes = 0;

  PermuteProblem() { op = "moe_permute"; }
  // Without tokens, there still are offsets to be written.
  bool empty() const { return num_experts == 0; }
};

// Likewise those that add up.
struct UnpermuteTraits {
  DType input = DType::bf16;
  DType output = DType::bf16;
  bool weights = true;
  std::uint8_t reserved_byte = 0;
  std::uint16_t vector = 8;  // elements that an access has of y and out: 1, 2, 4 or 8
  std::uint8_t reserved[42] = {};

  bool operator==(const UnpermuteTraits&) const = default;
};
static_assert(is_traits<UnpermuteTraits>);

struct UnpermuteProblem : Problem {
  UnpermuteTraits traits;
  int tokens = 0, top_k = 0, columns = 0;

  UnpermuteProblem() { op = "moe_unpermute"; }
  bool empty() const { return tokens == 0 || columns == 0; }
};

// Fill `problem`. Throw std::invalid_argument or TypeError.
void check_moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                       const TensorView& offsets, const TensorView& inverse,
                       PermuteProblem& problem);
void check_moe_unpermute(const TensorView& y, const TensorView& inverse, const TensorView& weights,
                         const TensorView& out, UnpermuteProblem& problem);

// Complete the recipe: of one launch, or of two where many pairs are counted before. These take a
// workspace, and so the caller's leave.
void resolve(PermuteProblem& problem, const runtime::Device& device, bool may_split);
void resolve(UnpermuteProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const PermuteProblem& problem);
double flops_of(const UnpermuteProblem& problem);

}  // namespace kiln
