#include "jit/merge_states/config.h"
#include "jit/merge_states/family.h"
#include "templates/merge_states/params.h"

namespace kiln {

std::string tile_name(const MergeConfig& config) {
  return std::to_string(config.lanes) + "x" + std::to_string(config.vectors) + "x" +
         std::to_string(config.parts);
}

int choose_merge(const MergeTraits& traits, std::int64_t columns, int parts) {
  const std::int64_t accesses = (columns + traits.vector - 1) / traits.vector;
  const auto configs = merge_configs();
  std::size_t row = 0;
  const auto serves = [&](const MergeConfig& config) {
    return accesses <= config.accesses() && config.serves(parts);
  };
  while (row + 1 < configs.size() && !serves(configs[row])) ++row;
  return static_cast<int>(row);
}

void resolve(MergeProblem& problem, const runtime::Device& device, bool) {
  const int row = choose_merge(problem.traits, problem.columns, static_cast<int>(problem.parts));
  const MergeConfig& config = merge_configs()[static_cast<std::size_t>(row)];
  Step& step = problem.recipe.first();
  step.spec = Specialization(merge_template(), arch_of(device), row, problem.traits);
  const long long rows = static_cast<long long>(problem.tokens) * problem.heads;
  step.blocks = grid_of(merge_blocks(rows, config.lanes));
}

double flops_of(const MergeProblem& problem) {
  constexpr double kOperations = 4;  // of an element of a part: its product, the sum, conversions
  return kOperations * problem.parts * problem.tokens * problem.heads * problem.columns;
}

}  // namespace kiln
