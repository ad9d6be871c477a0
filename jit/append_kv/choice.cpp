#include <algorithm>

#include "jit/append_kv/config.h"
#include "jit/append_kv/family.h"
#include "templates/append_kv/params.h"

namespace kiln {
namespace {

constexpr int kOne = 0, kSeveral = 1;  // rows of the table

const AppendConfig& append_config(int row) {
  return append_configs()[static_cast<std::size_t>(row)];
}

int lanes_of(const AppendTraits& traits) {
  return append_lanes(std::max(traits.head_dim, traits.head_dim_v), traits.vector);
}

// Whether heads of a token share its angles, or the weights of a norm.
bool fuses(const AppendTraits& traits) {
  return traits.weight != DType::none || traits.rotary != 0;
}
bool computes(const AppendTraits& traits) { return fuses(traits) || traits.cache != traits.input; }

// Whether one head is too few bytes of a thread.
bool is_narrow(const AppendTraits& traits) { return traits.vector < 4; }

long long blocks_of(const AppendProblem& problem, int row) {
  return append_blocks(problem.tokens, problem.heads, problem.heads_kv, lanes_of(problem.traits),
                       append_config(row).rows);
}

}  // namespace

std::string tile_name(const AppendConfig& config) {
  return std::to_string(config.rows) + (config.rows == 1 ? " row" : " rows");
}

bool may_choose(const AppendTraits& traits, int row) {
  return row == kOne || computes(traits) || is_narrow(traits);
}

int choose_append(const AppendProblem& problem, int sm_count) {
  // CTAs of one head for each multiprocessor that are worth more than further heads of each: as
  // many as it holds at once; to quantise, more.
  const AppendTraits& traits = problem.traits;
  const long long enough = fuses(traits) ? 8 : is_narrow(traits) ? 16 : 64;
  const bool is_many = blocks_of(problem, kOne) > enough * sm_count;
  return is_many && may_choose(traits, kSeveral) ? kSeveral : kOne;
}

void resolve(AppendProblem& problem, const runtime::Device& device, bool) {
  const int row = choose_append(problem, device.info().sm_count);
  Step& step = problem.recipe.first();
  step.spec = Specialization(append_template(), arch_of(device), row, problem.traits);
  step.blocks = grid_of(blocks_of(problem, row));
}

double flops_of(const AppendProblem& problem) {
  constexpr double kOperations = 10;  // of an element: squares, products, conversions
  return kOperations * static_cast<double>(problem.rows()) *
         std::max(problem.traits.head_dim, problem.traits.head_dim_v);
}

}  // namespace kiln
