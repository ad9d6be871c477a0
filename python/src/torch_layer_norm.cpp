// The C++ kernel of torch.ops.kiln.layer_norm and layer_norm_out.
#include "generated/torch_layer_norm.h"
#include "torch_norm.h"

namespace kiln::python {

void compute_layer_norm(TorchSlot* stack, std::size_t new_results) {
  compute_norm<LayerNormSignature, LayerNormArguments>(
      stack, new_results, [](auto& tensors, const NormOptions& options, void* stream) {
        layer_norm(tensors.x().view, tensors.weight().view, tensors.bias().view, tensors.out().view,
                   options, stream);
      });
}

}  // namespace kiln::python
