// The C++ kernel of torch.ops.kiln.moe_route and moe_route_out.
#include <utility>

#include "generated/torch_moe_route.h"
#include "kiln/moe.h"
#include "moe_options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {

void compute_moe_route(TorchSlot* stack, std::size_t new_results) {
  using Signature = MoeRouteSignature;
  const MoeRouteArguments given(TorchArguments(stack), new_results == 0);
  MoeRouteOptions options;
  given.set_numbers(options);
  options.scoring = moe_scoring(view_of(given.scoring));
  options.groups = as_int(given.groups, subject_of<Signature>(Signature::kGroups));
  options.top_groups = as_int(given.top_groups, subject_of<Signature>(Signature::kTopGroups));
  TorchIntake intake(Signature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  options.bias = tensors.bias().view;
  TensorView& weights = tensors.weights().view;
  TensorView& experts = tensors.experts().view;
  TorchTensor new_weights, new_experts;
  if (new_results != 0) {
    weights = route_result(tensors.logits().view, given.top_k, DType::f32);
    new_weights = intake.allocate(weights);
    experts = route_result(tensors.logits().view, given.top_k, DType::i32);
    new_experts = intake.allocate(experts);
  }
  check_route_results(tensors.logits().view, weights, experts, given.top_k);
  moe_route(tensors.logits().view, weights, experts, options, intake.stream());
  if (new_weights) stack[0] = slot_of(std::move(new_weights));
  if (new_experts) stack[1] = slot_of(std::move(new_experts));
}

}  // namespace kiln::python
