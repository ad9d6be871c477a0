// The C++ kernel of torch.ops.kiln.flash_attention_varlen and its like.
#include "generated/torch_flash_attention_varlen.h"

#include "torch_varlen.h"

namespace kiln::python {

void compute_flash_attention_varlen(TorchSlot* stack, std::size_t new_results) {
  using Signature = FlashAttentionVarlenSignature;
  const FlashAttentionVarlenArguments given(TorchArguments(stack), new_results == 0);
  TorchIntake intake(Signature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  VarlenOptions options;
  set_options<Signature>(given, tensors, intake, options);
  options.cu_seqlens_q = tensors.cu_seqlens_q().view;
  options.cu_seqlens_k = tensors.cu_seqlens_k().view;
  options.seqused_k = tensors.seqused_k().view;
  options.max_seqlen_q = given.max_seqlen_q;
  options.max_seqlen_k = given.max_seqlen_k;
  const TensorView &q = tensors.q().view, &k = tensors.k().view, &v = tensors.v().view;
  compute_results(
      tensors, intake, stack, new_results,
      [&] { return flash_attention_varlen_output(q, v, out_dtype_of(options.out_scale)); },
      [&] { return flash_attention_varlen_lse_output(q); },
      [&] {
        flash_attention_varlen(q, k, v, tensors.out().view, tensors.lse().view, options,
                               intake.stream());
      });
}

}  // namespace kiln::python
