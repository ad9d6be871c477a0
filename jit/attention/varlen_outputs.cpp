// The outputs of calls over sequences, as views without memory.
#include "jit/attention/tensor_checks.h"
#include "jit/attention/varlen.h"
#include "jit/op/checks.h"

namespace kiln {
namespace {

TensorView view_like(const TensorView& q, TensorView view) {
  view.device_type = q.device_type;
  return view;
}

DType dtype_of_out(const TensorView& q, DType given) {
  return given == DType::none ? output_dtype(q.dtype) : given;
}

void check_output_inputs(const AttentionNames& names, const TensorView& q, const TensorView& v,
                         int rank, const char* layout) {
  check_view({names.op, names.q}, q);
  check_rank({names.op, names.q}, q, rank, layout);
  check_view({names.op, names.v}, v);
  if (v.rank != 3 && v.rank != 4) check_rank({names.op, names.v}, v, 4, kCacheLayout);
}

}  // namespace

TensorView flash_attention_varlen_output(const TensorView& q, const TensorView& v,
                                         DType out_dtype) {
  check_output_inputs(kVarlenNames, q, v, 3, kPackedLayout);
  return view_like(q, contiguous_view(nullptr, dtype_of_out(q, out_dtype), q.device_ordinal,
                                      q.shape[0], q.shape[1], v.shape[v.rank - 1]));
}

TensorView flash_attention_varlen_lse_output(const TensorView& q) {
  check_view({kVarlenNames.op, "q"}, q);
  check_rank({kVarlenNames.op, "q"}, q, 3, kPackedLayout);
  return view_like(q,
                   contiguous_view(nullptr, DType::f32, q.device_ordinal, q.shape[1], q.shape[0]));
}

TensorView flash_attention_with_kvcache_output(const TensorView& q, const TensorView& v_cache,
                                               DType out_dtype) {
  check_output_inputs(kKvCacheNames, q, v_cache, 4, kDenseLayout);
  return view_like(
      q, contiguous_view(nullptr, dtype_of_out(q, out_dtype), q.device_ordinal, q.shape[0],
                         q.shape[1], q.shape[2], v_cache.shape[v_cache.rank - 1]));
}

TensorView flash_attention_with_kvcache_lse_output(const TensorView& q) {
  check_view({kKvCacheNames.op, "q"}, q);
  check_rank({kKvCacheNames.op, "q"}, q, 4, kDenseLayout);
  return view_like(q, contiguous_view(nullptr, DType::f32, q.device_ordinal, q.shape[0], q.shape[2],
                                      q.shape[1]));
}

}  // namespace kiln
