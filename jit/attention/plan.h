// Plans of calls over sequences, which the layers of a step share: the launch that makes one, and
// what a call says of the one that it is given. See templates/attention/varlen/plan.cuh.
#pragma once

#include "jit/attention/config.h"
#include "jit/attention/sequence_tensors.h"
#include "jit/attention/varlen.h"

namespace kiln {

inline constexpr AttentionNames kPlanNames = {.op = "plan_attention"};

// A call whose launches are planned, not made.
struct PlanProblem : Problem {
  AttentionProblem attention{kPlanNames};
  // `attention` refers to these, of which q, k, v and out are without memory.
  TensorView plan, q, k, v, out;
  VarlenOptions varlen;
  KvCacheOptions kvcache;

  PlanProblem() { op = attention.op; }
  bool empty() const { return attention.empty(); }
  // Requires: resolved. 0: the call's launches need no plan.
  std::int64_t words() const { return attention.plan_words; }
};

// Fill `problem`. `plan` may be not given: see most_words(). Throw
// std::invalid_argument or TypeError.
void check_plan(const TensorView& q, const TensorView& k, const TensorView& v,
                const TensorView& plan, const VarlenOptions& options, PlanProblem& problem);
void check_plan(const TensorView& q, const TensorView& k, const TensorView& v,
                const TensorView& plan, const KvCacheOptions& options, PlanProblem& problem);

// Bounds the words of a checked problem's plan on any device of up to 512 multiprocessors, by what
// PyTorch knows of the call while it traces. kiln/operators/plan_attention.py says the same.
std::int64_t most_words(const PlanProblem& problem);

// See jit/op/launch.h. Where words() is 0, the recipe has no kernel.
void resolve(PlanProblem& problem, const runtime::Device& device, bool may_split);
double flops_of(const PlanProblem& problem);

// The traits of calls that its kernel knows: how masks bound keys, and whether keys are spread over
// devices.
AttentionTraits planner_traits(const AttentionTraits& call);

// A plan is made for tensors of such shapes and strides that begin at multiples of 16 bytes, and
// for a contiguous out: where a call's do not, it may have another kernel, and looks at all lengths
// itself.
bool are_as_planned(const TensorView& q, const TensorView& k, const TensorView& v,
                    const TensorView& out);
// A call's plan, if it is given: notes it, and what stands for its masks in the plan's key.
void add_plan(const TensorView& plan, const AttentionOptions& options,
              const SequenceTensors& sequences, AttentionProblem& problem);
// The part of the plan that a step over sequences reads, and its key, if the call has a plan.
// Requires: all other arguments of the step are set. The second is for a step of the sm_90a kernel,
// which needs a plan where its CTAs share keys and the call has several sequences.
void set_plan(Step& step, const AttentionConfig& config, AttentionProblem& problem);
void set_plan_sm90(Step& step, AttentionProblem& problem);
// Throws std::invalid_argument where a resolved call's plan is too short for it.
void check_plan_length(const AttentionProblem& problem);

}  // namespace kiln
