#include "jit/moe_route/config.h"
#include "jit/moe_route/family.h"
#include "jit/moe_route/problem.h"
#include "templates/moe_route/params.h"

namespace kiln {

int choose_route(int experts) {
  const auto configs = route_configs();
  std::size_t row = 0;
  while (row + 1 < configs.size() && experts > configs[row].experts) ++row;
  return static_cast<int>(row);
}

void resolve(RouteProblem& problem, const runtime::Device& device, bool) {
  Step& step = problem.recipe.first();
  step.spec = Specialization(route_template(), arch_of(device), choose_route(problem.experts),
                             problem.traits);
  step.blocks = grid_of(route_blocks(problem.tokens));
}

double flops_of(const RouteProblem& problem) {
  // Of an expert: its score; of each that is chosen, a comparison with all.
  constexpr double kScore = 20, kCompare = 4;
  return (kScore + kCompare * problem.top_k) * problem.tokens * problem.experts;
}

}  // namespace kiln
