// The problems of KernelCase for merging. A row of columns fills its threads but for one access, or
// half of them, or has more than one turn; a CTA has rows of its own and a last one in part; parts
// are one, as many as are read at a time and one more, or one less than twice as many.
#include <algorithm>

#include "jit/merge_states/config.h"
#include "jit/merge_states/family.h"
#include "templates/merge_states/params.h"
#include "tests/emulator/kernel_case.h"
#include "tests/emulator/reference.h"

namespace kiln::testing {

void KernelCase::make_merge_states(int size) {
  const auto traits = spec_.traits_as<MergeTraits>();
  const MergeConfig& config = merge_configs()[static_cast<std::size_t>(spec_.row())];
  const int accesses = size == 0   ? config.accesses() - 1
                       : size == 1 ? std::max(config.accesses() / 2, 1)
                                   : config.accesses() + 3;
  const int heads = 3, tokens = kMergeThreads / config.lanes / heads + 1;
  MergeReference problem;
  problem.parts = size == 0 ? config.parts + 1 : size == 1 ? 1 : 2 * config.parts - 1;
  problem.rows = tokens * heads, problem.heads = heads;
  problem.columns = accesses * traits.vector;
  Tensor& outs = tensor(traits.input, {problem.parts, tokens, heads, problem.columns});
  Tensor& lses = tensor(DType::f32, {problem.parts, tokens, heads});
  Tensor& out = tensor(traits.output, {tokens, heads, problem.columns});
  Tensor& lse = tensor(DType::f32, {tokens, heads});
  MergeStatesOptions options;
  options.layout = LseLayout::tokens_heads;
  if (traits.sinks != DType::none) {
    const Tensor& sinks = tensor(traits.sinks, {heads});
    options.sinks = sinks.view;
    problem.sinks = sinks.values;
  }
  problem.outs = outs.values, problem.lses = lses.values;
  MergeProblem call;
  check_merge_states(outs.view, lses.view, out.view, lse.view, options, call);
  Step& step = call.recipe.first();
  step.spec = spec_;
  step.blocks = static_cast<unsigned>(merge_blocks(problem.rows, config.lanes));
  recipe_ = call.recipe;
  outputs_.push_back({&out, reference(problem), epsilon(traits.output)});
  outputs_.push_back({&lse, merged_lse(problem), epsilon(DType::f32)});
}

}  // namespace kiln::testing
