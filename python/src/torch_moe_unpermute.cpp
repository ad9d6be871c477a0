// The C++ kernel of torch.ops.kiln.moe_unpermute and moe_unpermute_out.
#include <utility>

#include "generated/torch_moe_unpermute.h"
#include "kiln/moe.h"
#include "moe_options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {

void compute_moe_unpermute(TorchSlot* stack, std::size_t new_results) {
  using Signature = MoeUnpermuteSignature;
  const MoeUnpermuteArguments given(TorchArguments(stack), new_results == 0);
  const DType asked = asked_dtype(given.out_dtype, subject_of<Signature>(Signature::kOutDtype));
  TorchIntake intake(Signature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  TensorView& out = tensors.out().view;
  check_out_dtype(Signature::kOp, asked, out);
  TorchTensor new_out;
  if (new_results != 0) {
    out = unpermuted_rows(tensors.y().view, tensors.inverse().view, asked);
    new_out = intake.allocate(out);
  }
  moe_unpermute(tensors.y().view, tensors.inverse().view, tensors.weights().view, out,
                intake.stream());
  if (new_out) stack[0] = slot_of(std::move(new_out));
}

}  // namespace kiln::python
