// The C++ kernel of torch.ops.kiln.append_kv.
#include "generated/torch_append_kv.h"
#include "append_kv_options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {

void compute_append_kv(TorchSlot* stack, std::size_t new_results) {
  const AppendKvArguments given(TorchArguments(stack), new_results == 0);
  AppendKvOptions options;
  given.set_numbers(options);
  TorchIntake intake(AppendKvSignature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  set_append_options(tensors, options);
  append_kv(tensors.key().view, tensors.value().view, tensors.k_cache().view,
            tensors.v_cache().view, tensors.slot_mapping().view, options, intake.stream());
}

}  // namespace kiln::python
