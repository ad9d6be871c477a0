// The call that chooses the experts of tokens, checked: what is baked into its kernel (traits),
// what chooses the config row, and the packed arguments. Every argument error ends in these checks.
#pragma once

#include <cstdint>

#include "jit/op/launch.h"
#include "jit/op/names.h"
#include "kiln/moe.h"

namespace kiln {

inline constexpr Named kScoringNames[] = {{"softmax", MoeScoring::softmax},
                                          {"sigmoid", MoeScoring::sigmoid}};

// The kernels are specialised for these properties, as Traits.
struct RouteTraits {
  DType input = DType::f32;
  DType bias = DType::none;
  MoeScoring scoring = MoeScoring::softmax;
  std::uint8_t reserved[45] = {};

  bool operator==(const RouteTraits&) const = default;
};
static_assert(is_traits<RouteTraits>);

struct RouteProblem : Problem {
  RouteTraits traits;
  int tokens = 0, experts = 0, top_k = 0;

  RouteProblem() { op = "moe_route"; }
  bool empty() const { return tokens == 0; }
};

// Fills `problem`. Throws std::invalid_argument or TypeError.
void check_moe_route(const TensorView& logits, const TensorView& weights, const TensorView& experts,
                     const MoeRouteOptions& options, RouteProblem& problem);

// Completes the recipe, of one launch.
void resolve(RouteProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const RouteProblem& problem);

}  // namespace kiln
