// The C++ kernel of torch.ops.kiln.rms_norm and rms_norm_out.
#include "generated/torch_rms_norm.h"
#include "torch_norm.h"

namespace kiln::python {

void compute_rms_norm(TorchSlot* stack, std::size_t new_results) {
  compute_norm<RmsNormSignature, RmsNormArguments>(
      stack, new_results, [](auto& tensors, const NormOptions& options, void* stream) {
        rms_norm(tensors.x().view, tensors.weight().view, tensors.out().view, options, stream);
      });
}

}  // namespace kiln::python
