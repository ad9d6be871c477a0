#include "jit/quantize/config.h"
#include "jit/quantize/family.h"
#include "templates/quantize/params.h"

namespace kiln {

std::string tile_name(const QuantizeConfig& config) {
  return std::to_string(config.lanes) + "x" + std::to_string(config.vectors) +
         (config.turns ? " in turns" : "");
}

int choose_quantize(const QuantizeTraits& traits, std::int64_t group) {
  const std::int64_t accesses = (group + traits.vector - 1) / traits.vector;
  const auto configs = quantize_configs();
  std::size_t row = 0;
  while (row + 1 < configs.size() && accesses > configs[row].accesses()) ++row;
  return static_cast<int>(row);
}

void resolve(QuantizeProblem& problem, const runtime::Device& device, bool) {
  const int row = choose_quantize(problem.traits, problem.group);
  const QuantizeConfig& config = quantize_configs()[static_cast<std::size_t>(row)];
  Step& step = problem.recipe.first();
  step.spec = Specialization(quantize_template(), arch_of(device), row, problem.traits);
  const long long all = static_cast<long long>(problem.rows) * problem.groups;
  step.blocks = grid_of(quantize_blocks(all, config.lanes));
}

double flops_of(const QuantizeProblem& problem) {
  // Of an element: its part of the maximum and the division; of a gated one the activation, too.
  const double operations = problem.traits.activation == Activation::none ? 10 : 20;
  return operations * problem.rows * problem.columns;
}

}  // namespace kiln
