#include <algorithm>
#include <cstddef>

#include "jit/moe_permute/family.h"
#include "jit/moe_permute/problem.h"
#include "jit/op/arch.h"
#include "templates/moe_permute/params.h"

namespace kiln {

PermuteGrid permute_grid(std::int64_t tokens, int sm_count) {
  const std::int64_t most = 2 * static_cast<std::int64_t>(std::max(sm_count, 1));
  const std::int64_t each = std::max<std::int64_t>((tokens + most - 1) / most, 1);
  return {static_cast<int>(each),
          static_cast<int>(std::max<std::int64_t>((tokens + each - 1) / each, 1))};
}

void resolve(PermuteProblem& problem, const runtime::Device& device, bool may_split) {
  const int arch = arch_of(device);
  const PermuteGrid grid = permute_grid(problem.tokens, device.info().sm_count);
  Step& first = problem.recipe.first();
  first.blocks = static_cast<unsigned>(grid.blocks);
  first.arguments.set_int(offsetof(PermuteParams, tokens_each), grid.tokens_each);
  first.spec = Specialization(permute_template(PermuteLaunch::sort), arch, 0, problem.traits);
  const long long pairs = static_cast<long long>(problem.tokens) * problem.top_k;
  if (!may_split || pairs <= kMostLonePairs) return;
  const auto bytes = static_cast<std::size_t>(grid.blocks) *
                     static_cast<std::size_t>(problem.num_experts) * sizeof(int);
  problem.recipe.workspace_bytes = bytes;
  first.arguments.want_workspace(offsetof(PermuteParams, counts), 0, bytes);
  Step& second = problem.recipe.add();
  second = first;
  first.spec = Specialization(permute_template(PermuteLaunch::count), arch, 0, problem.traits);
  second.programmatic = may_overlap(arch);
}

double flops_of(const PermuteProblem& problem) {
  // Of a pair: its place; of an access: its copy.
  constexpr double kPlaces = 100, kCopies = 10;
  const double pairs = static_cast<double>(problem.tokens) * problem.top_k;
  return pairs * (kPlaces + kCopies * problem.row_bytes / problem.traits.access);
}

void resolve(UnpermuteProblem& problem, const runtime::Device& device, bool) {
  Step& step = problem.recipe.first();
  step.spec = Specialization(unpermute_template(), arch_of(device), 0, problem.traits);
  step.blocks = grid_of(unpermute_blocks(problem.tokens, problem.columns, problem.traits.vector));
}

double flops_of(const UnpermuteProblem& problem) {
  constexpr double kOperations = 4;  // of an element of a row: the product, the sum, conversions
  return kOperations * problem.top_k * problem.tokens * problem.columns;
}

}  // namespace kiln
