// The C++ kernel of torch.ops.kiln.flash_attention_with_kvcache and its like.
#include "generated/torch_flash_attention_with_kvcache.h"

#include "torch_varlen.h"

namespace kiln::python {

void compute_flash_attention_with_kvcache(TorchSlot* stack, std::size_t new_results) {
  using Signature = FlashAttentionWithKvcacheSignature;
  const FlashAttentionWithKvcacheArguments given(TorchArguments(stack), new_results == 0);
  TorchIntake intake(Signature::kOp);
  auto tensors = given.tensors();
  intake.read(tensors.all);
  KvCacheOptions options;
  set_options<Signature>(given, tensors, intake, options);
  options.cache_seqlens = tensors.cache_seqlens().view;
  options.cache_batch_idx = tensors.cache_batch_idx().view;
  options.cache_leftpad = tensors.cache_leftpad().view;
  const TensorView& q = tensors.q().view;
  const TensorView &k = tensors.k_cache().view, &v = tensors.v_cache().view;
  compute_results(
      tensors, intake, stack, new_results,
      [&] { return flash_attention_with_kvcache_output(q, v, out_dtype_of(options.out_scale)); },
      [&] { return flash_attention_with_kvcache_lse_output(q); },
      [&] {
        flash_attention_with_kvcache(q, k, v, tensors.out().view, tensors.lse().view, options,
                                     intake.stream());
      });
}

}  // namespace kiln::python
