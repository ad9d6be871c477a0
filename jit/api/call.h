// The steps that the public entries of all operators share: plans and explanations. Calls are run()
// in jit/op/launch.h.
#pragma once

#include "jit/op/launch.h"
#include "jit/tools/explain.h"
#include "kiln/plan.h"

namespace kiln {

// Makes a plan of the problem's recipe. `device` is null for an empty problem, whose recipe has no
// kernel.
Plan make_plan(const Problem& problem, runtime::Device* device, double flops);

// Requires: checked with may_be_null.
template <class SomeProblem>
Plan plan(SomeProblem& problem) {
  if (problem.empty()) return make_plan(problem, nullptr, 0);
  runtime::Device& device = device_of(problem.device_ordinal);
  resolve(problem, device, /*may_split=*/true);
  return make_plan(problem, &device, flops_of(problem));
}

// Requires: checked with may_be_null. `call` is asked after the recipe is resolved.
template <class SomeProblem, class Explained>
std::string explain(SomeProblem& problem, bool may_split, Explained&& call) {
  if (problem.empty()) return explain_nothing(problem.op);
  runtime::Device& device = device_of(problem.device_ordinal);
  resolve(problem, device, may_split);
  return explain_recipe(call(), problem.recipe, problem.texts, device);
}

}  // namespace kiln
