// The call of a norm, checked: what is baked into its kernel (traits), what chooses the config row,
// and the packed arguments. Every argument error ends in these checks, in one sentence.
#pragma once

#include <cstdint>

#include "jit/op/launch.h"
#include "jit/op/names.h"
#include "kiln/norm.h"

namespace kiln {

enum class NormKind : std::uint8_t { rms, layer };

// What the norms' kernels are specialised for, as Traits.
struct NormTraits {
  NormKind kind = NormKind::rms;
  DType input = DType::bf16;  // of x, residual and residual_out
  DType output = DType::bf16;
  DType weight = DType::none;
  DType bias = DType::none;  // of layer_norm alone
  Activation activation = Activation::none;
  bool residual = false;
  std::uint8_t reserved_byte = 0;
  std::uint16_t vector = 8;  // elements that an access has of each tensor: 1, 2, 4 or 8
  std::uint8_t reserved[38] = {};

  bool operator==(const NormTraits&) const = default;
};
static_assert(is_traits<NormTraits>);

struct NormProblem : Problem {
  NormTraits traits;
  int rows = 0, columns = 0;

  explicit NormProblem(NormKind kind) {
    traits.kind = kind;
    op = kind == NormKind::rms ? "rms_norm" : "layer_norm";
  }
  bool empty() const { return rows == 0 || columns == 0; }
};

// Fills `problem`. `bias` is not given for rms_norm. Throws std::invalid_argument or TypeError.
void check_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& out, const NormOptions& options, NormProblem& problem);

// Completes the recipe: one launch, or two where few rows are very wide, which takes a workspace
// and so the caller's leave. Throws std::invalid_argument where rows are too wide for one launch
// and there is no workspace.
void resolve(NormProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const NormProblem& problem);

}  // namespace kiln
