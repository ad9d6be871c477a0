// The C++ kernel of torch.ops.kiln.quantize and quantize_out.
#include <utility>

#include "generated/torch_quantize.h"
#include "kiln/quantize.h"
#include "quantize_options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {
namespace {

// Contiguous in the layout's order.
TensorView new_scale(const TensorView& x, const QuantizeOptions& options, ScaleLayout layout) {
  TensorView scale = quantize_scale(x, options);
  if (layout == ScaleLayout::row || scale.rank < 2) return scale;
  scale.strides[scale.rank - 2] = 1;
  scale.strides[scale.rank - 1] = scale.shape[scale.rank - 2];
  return scale;
}

}  // namespace

void compute_quantize(TorchSlot* stack, std::size_t new_results) {
  using Signature = QuantizeSignature;
  const QuantizeArguments given(TorchArguments(stack), new_results == 0);
  QuantizeOptions options;
  given.set_numbers(options);
  options.group = given.group ? scale_group(*given.group) : 0;
  if (given.activation) options.activation = gate_activation(view_of(given.activation));
  const ScaleLayout layout = scale_layout(view_of(given.scale_layout));
  const DType asked = asked_dtype(given.out_dtype, subject_of<Signature>(Signature::kOutDtype));
  TorchIntake intake(Signature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  options.counts = tensors.counts().view;
  TensorView& out = tensors.out().view;
  TensorView& scale = tensors.scale_out().view;
  check_quantized_dtype(asked, out);
  TorchTensor new_out, made_scale;
  if (new_results != 0) {
    out = quantize_output(tensors.x().view, asked, options);
    new_out = intake.allocate(out);
    scale = new_scale(tensors.x().view, options, layout);
    made_scale = intake.allocate(scale);
  }
  quantize(tensors.x().view, out, scale, options, intake.stream());
  if (new_out) stack[0] = slot_of(std::move(new_out));
  if (made_scale) stack[1] = slot_of(std::move(made_scale));
}

}  // namespace kiln::python
