#include <algorithm>

#include "jit/append_kv/config.h"
#include "jit/append_kv/family.h"
#include "templates/append_kv/params.h"

namespace kiln {
namespace {

const AppendConfig& append_config(int row) {
  return append_configs()[static_cast<std::size_t>(row)];
}

int lanes_of(const AppendTraits& traits) {
  return append_lanes(std::max(traits.head_dim, traits.head_dim_v), traits.vector);
}

}  // namespace

std::string tile_name(const AppendConfig& config) {
  return std::to_string(config.rows) + (config.rows == 1 ? " row" : " rows");
}

int choose_append(const AppendTraits& traits, long long heads_of_tokens, int sm_count) {
  // CTAs of a multiprocessor that are worth more than a second row of each: what it holds at once.
  constexpr int kBusy = 8;
  constexpr int kLast = 1;
  const long long blocks =
      append_blocks(heads_of_tokens, lanes_of(traits), append_config(kLast).rows);
  return blocks >= static_cast<long long>(kBusy) * sm_count ? kLast : 0;
}

void resolve(AppendProblem& problem, const runtime::Device& device, bool) {
  const int row = choose_append(problem.traits, problem.rows(), device.info().sm_count);
  Step& step = problem.recipe.first();
  step.spec = Specialization(append_template(), arch_of(device), row, problem.traits);
  step.blocks =
      grid_of(append_blocks(problem.rows(), lanes_of(problem.traits), append_config(row).rows));
}

double flops_of(const AppendProblem& problem) {
  constexpr double kOperations = 10;  // of an element: squares, products, conversions
  return kOperations * static_cast<double>(problem.rows()) *
         std::max(problem.traits.head_dim, problem.traits.head_dim_v);
}

}  // namespace kiln
