// The C++ kernel of torch.ops.kiln.scaled_dot_product_attention.
#include <utility>

#include "attention_options.h"
#include "generated/torch_scaled_dot_product_attention.h"
#include "options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {

void compute_scaled_dot_product_attention(TorchSlot* stack, std::size_t) {
  const ScaledDotProductAttentionArguments given{TorchArguments(stack)};
  if (static_cast<float>(given.dropout_p) != 0.0f) refuse_dropout(repr_of(given.dropout_p));
  const Subject scale =
      subject_of<ScaledDotProductAttentionSignature>(ScaledDotProductAttentionSignature::kScale);
  SdpaOptions options{.is_causal = given.is_causal,
                      .scale = float_number(given.scale, scale),
                      .enable_gqa = given.enable_gqa};
  TorchIntake intake(ScaledDotProductAttentionSignature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  options.workspace = intake.workspace();
  const TensorView& query = tensors.query().view;
  const TensorView& key = tensors.key().view;
  const TensorView& value = tensors.value().view;
  TensorView out = scaled_dot_product_attention_output(query, key, value, options.enable_gqa);
  TorchTensor result = intake.allocate(out);
  scaled_dot_product_attention(query, key, value, tensors.attn_mask().view, out, options,
                               intake.stream());
  stack[0] = slot_of(std::move(result));
}

}  // namespace kiln::python
