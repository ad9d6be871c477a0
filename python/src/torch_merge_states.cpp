// The C++ kernel of torch.ops.kiln.merge_states, merge_states_lse and merge_states_out.
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
  const TensorView& outs = tensors.outs().view;
  const TensorView& lses = tensors.lses().view;
  compute_results(
      tensors, intake, stack, new_results, [&] { return merge_states_output(outs); },
      [&] { return merge_states_lse(lses); },
      [&] {
        merge_states(outs, lses, tensors.out().view, tensors.lse().view, options, intake.stream());
      });
}

}  // namespace kiln::python
