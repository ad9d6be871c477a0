// The call that quantises activations, checked: what is baked into its kernel (traits), what
// chooses the config row, and the packed arguments. Every argument error ends in these checks.
#pragma once

#include <cstdint>

#include "jit/op/launch.h"
#include "jit/op/names.h"
#include "kiln/quantize.h"

namespace kiln {

inline constexpr Named kGateActivationNames[] = {{"none", Activation::none},
                                                 {"swiglu", Activation::swiglu},
                                                 {"geglu", Activation::geglu},
                                                 {"geglu_tanh", Activation::geglu_tanh}};

// The kernels are specialised for these properties, as Traits.
struct QuantizeTraits {
  DType input = DType::bf16;
  DType output = DType::f8_e4m3;
  Activation activation = Activation::none;
  bool power_of_two = false;
  bool counts = false;
  bool byte_scales = false;  // float8_e8m0fnu, which are powers of two
  std::uint16_t vector = 8;  // elements that an access has of each tensor: 1, 2, 4 or 8
  std::uint8_t reserved[40] = {};

  bool operator==(const QuantizeTraits&) const = default;
};
static_assert(is_traits<QuantizeTraits>);

struct QuantizeProblem : Problem {
  QuantizeTraits traits;
  int rows = 0, columns = 0, group = 0, groups = 0;  // columns of out; groups of a row

  QuantizeProblem() { op = "quantize"; }
  bool empty() const { return rows == 0 || columns == 0; }
};

// Fills `problem`. Throws std::invalid_argument or TypeError.
void check_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                    const QuantizeOptions& options, QuantizeProblem& problem);

// Completes the recipe, of one launch.
void resolve(QuantizeProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const QuantizeProblem& problem);

}  // namespace kiln
