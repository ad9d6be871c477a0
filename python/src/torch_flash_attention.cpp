// The C++ kernel of torch.ops.kiln.flash_attention, flash_attention_lse and flash_attention_out.
#include "generated/torch_flash_attention.h"

#include "attention_options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"

namespace kiln::python {
namespace {

using Signature = FlashAttentionSignature;

AttentionOptions options_of(const FlashAttentionArguments& given) {
  AttentionOptions options;
  given.set_numbers(options);
  read_window(given.window, subject_of<Signature>(Signature::kWindow), options);
  options.layout = attention_layout(view_of(given.layout));
  return options;
}

}  // namespace

void compute_flash_attention(TorchSlot* stack, std::size_t new_results) {
  const FlashAttentionArguments given(TorchArguments(stack), new_results == 0);
  AttentionOptions options = options_of(given);
  TorchIntake intake(FlashAttentionSignature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  options.attn_mask = tensors.attn_mask().view;
  options.sinks = tensors.sinks().view;
  options.alibi_slopes = tensors.alibi_slopes().view;
  options.q_scale = tensors.q_scale().view;
  options.k_scale = tensors.k_scale().view;
  options.v_scale = tensors.v_scale().view;
  options.workspace = intake.workspace();
  const TensorView& q = tensors.q().view;
  const TensorView& k = tensors.k().view;
  const TensorView& v = tensors.v().view;
  compute_results(
      tensors, intake, stack, new_results, [&] { return flash_attention_output(q, v); },
      [&] { return lse_of(q, options.layout); },
      [&] {
        flash_attention(q, k, v, tensors.out().view, tensors.lse().view, options, intake.stream());
      });
}

}  // namespace kiln::python
