// The C++ kernel of torch.ops.kiln.merge_states, merge_states_lse and merge_states_out.
#include <utility>

#include "generated/torch_merge_states.h"
#include "kiln/merge_states.h"
#include "merge_states_options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {

void compute_merge_states(TorchSlot* stack, std::size_t new_results) {
  const MergeStatesArguments given(TorchArguments(stack), new_results == 0);
  MergeStatesOptions options;
  options.base = lse_base(view_of(given.base));
  options.layout = lse_layout(view_of(given.layout));
  TorchIntake intake(MergeStatesSignature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  options.sinks = tensors.sinks().view;
  TensorView& out = tensors.out().view;
  TensorView& lse = tensors.lse().view;
  TorchTensor new_out, new_lse;
  if (new_results >= 1) {
    out = merge_states_output(tensors.outs().view);
    new_out = intake.allocate(out);
  }
  if (new_results >= 2) {
    lse = merge_states_lse(tensors.lses().view);
    new_lse = intake.allocate(lse);
  }
  merge_states(tensors.outs().view, tensors.lses().view, out, lse, options, intake.stream());
  if (new_out) stack[0] = slot_of(std::move(new_out));
  if (new_lse) stack[1] = slot_of(std::move(new_lse));
}

}  // namespace kiln::python
