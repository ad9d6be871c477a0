// The C++ kernel of torch.ops.kiln.plan_attention and plan_attention_out.
#include <utility>

#include "attention_options.h"
#include "generated/torch_plan_attention.h"
#include "options.h"
#include "plan_options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"
#include "torch_tensors.h"

namespace kiln::python {

void compute_plan_attention(TorchSlot* stack, std::size_t new_results) {
  using Signature = PlanAttentionSignature;
  const PlanAttentionArguments given(TorchArguments(stack), new_results == 0);
  TorchIntake intake(Signature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  PlanNumbers numbers;
  given.set_numbers(numbers.attention);
  numbers.attention.causal = given.causal;
  read_window(given.window, subject_of<Signature>(Signature::kWindow), numbers.attention);
  numbers.context = {given.cp_world, given.cp_rank, given.cp_interleave, {}};
  numbers.max_seqlen_q = given.max_seqlen_q;
  numbers.max_seqlen_k = given.max_seqlen_k;
  numbers.num_splits = given.num_splits;
  numbers.attention.workspace = intake.workspace();
  TensorView& plan = tensors.plan().view;
  const TensorView &q = tensors.q().view, &k = tensors.k().view, &v = tensors.v().view;
  TorchTensor made;
  if (new_results >= 1) {
    plan = with_plan_options(tensors, numbers, [&](const auto& options) {
      return plan_attention_output(q, k, v, options);
    });
    made = intake.allocate(plan);
  }
  with_plan_options(tensors, numbers, [&](const auto& options) {
    plan_attention(q, k, v, plan, options, intake.stream());
  });
  if (made) stack[0] = slot_of(std::move(made));
}

}  // namespace kiln::python
