// The C++ kernel of torch.ops.kiln.moe_permute and moe_permute_out.
#include <utility>

#include "generated/torch_moe_permute.h"
#include "kiln/moe.h"
#include "moe_options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {

void compute_moe_permute(TorchSlot* stack, std::size_t new_results) {
  const MoePermuteArguments given(TorchArguments(stack), new_results == 0);
  TorchIntake intake(MoePermuteSignature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  TensorView& out = tensors.out().view;
  TensorView& offsets = tensors.offsets().view;
  TensorView& inverse = tensors.inverse().view;
  TorchTensor new_out, new_offsets, new_inverse;
  if (new_results != 0) {
    out = permuted_rows(tensors.x().view, tensors.experts().view);
    new_out = intake.allocate(out);
    offsets = expert_offsets(given.num_experts);
    new_offsets = intake.allocate(offsets);
    inverse = inverse_rows(tensors.experts().view);
    new_inverse = intake.allocate(inverse);
  }
  check_expert_offsets(offsets, given.num_experts);
  moe_permute(tensors.x().view, tensors.experts().view, out, offsets, inverse, intake.workspace(),
              intake.stream());
  if (new_out) stack[0] = slot_of(std::move(new_out));
  if (new_offsets) stack[1] = slot_of(std::move(new_offsets));
  if (new_inverse) stack[2] = slot_of(std::move(new_inverse));
}

}  // namespace kiln::python
