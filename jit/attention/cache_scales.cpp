#include "jit/attention/cache_scales.h"

#include <cstddef>
#include <string>

namespace kiln {
namespace {

bool is_one_number(const TensorView& scale) {
  return scale.rank == 0 || (scale.rank == 1 && scale.shape[0] == 1);
}

void check_cache_scale(const char* argument, const TensorView& scale, DType dtype,
                       const AttentionProblem& problem) {
  if (!scale.given()) return;
  const Subject subject{problem.names.op, argument};
  if (!is_quantized(dtype)) {
    throw_value(subject, std::string("is of quantised caches, and this one is ") + name(dtype) +
                             "; leave it out");
  }
  check_tensor(subject, scale, problem.device_ordinal);
  check_dtype(subject, scale, DType::f32, "");
  check_data(subject, scale, problem.may_be_null);
  const bool by_head =
      scale.rank >= 1 && scale.rank <= 2 && scale.shape[scale.rank - 1] == problem.heads_kv;
  if (is_one_number(scale) || (by_head && (scale.rank == 1 || scale.shape[0] == problem.batch)))
    return;
  const std::string heads = std::to_string(problem.heads_kv);
  throw_value(subject, "must have shape [] or [1] (one for all), [" + heads +
                           "] (one for each KV head) or [" + std::to_string(problem.batch) + ", " +
                           heads + "] (and for each sequence), got " + shape_text(scale) +
                           "; scales of single tokens are not supported, so quantise each KV head "
                           "with one");
}

AttentionScale attention_scale(const TensorView& scale) {
  AttentionScale all{static_cast<const float*>(scale.data), 0, 0};
  if (scale.rank >= 1 && scale.shape[scale.rank - 1] > 1) {
    all.head = scale.strides[scale.rank - 1];
  }
  if (scale.rank == 2) all.batch = scale.strides[0];
  return all;
}

}  // namespace

void check_cache_dtypes(const TensorView& q, const TensorView& k, const TensorView& v,
                        const AttentionProblem& problem) {
  const AttentionNames& names = problem.names;
  if (is_f8(q.dtype)) {
    check_dtype({names.op, names.k}, k, q.dtype,
                " like q, as queries of 8 bits are multiplied by "
                "keys of their own dtype");
  }
  if (k.dtype != q.dtype && !is_quantized(k.dtype)) {
    throw_type({names.op, names.k}, std::string("must be ") + name(q.dtype) +
                                        " like q, or quantised: float8_e4m3fn, float8_e5m2 or "
                                        "int8; got " +
                                        name(k.dtype));
  }
  check_dtype({names.op, names.v}, v, k.dtype, k.dtype == q.dtype ? " like q" : " like the keys");
}

void check_out_scale(const TensorView& scale, DType dtype, const TensorView& out,
                     const AttentionProblem& problem) {
  const Subject subject{problem.names.op, "out_scale"};
  if (!scale.given()) {
    if (out.dtype == DType::f8_e4m3) {
      throw_value(subject,
                  "is needed where out is float8_e4m3fn: a float32 tensor of one number, "
                  "by which results are divided");
    }
    if (!is_f8(dtype)) return check_dtype({problem.names.op, "out"}, out, dtype, " like q");
    if (is_half(out.dtype)) return;
    throw_type({problem.names.op, "out"}, std::string("must be bfloat16 or float16 beside q of ") +
                                              name(dtype) + ", got " + name(out.dtype));
  }
  check_tensor(subject, scale, problem.device_ordinal);
  check_dtype(subject, scale, DType::f32, "");
  check_data(subject, scale, problem.may_be_null);
  if (!is_one_number(scale)) {
    throw_value(subject,
                "must have shape [] or [1], as all results are divided by one number, got " +
                    shape_text(scale));
  }
  check_dtype({problem.names.op, "out"}, out, DType::f8_e4m3, " where out_scale is given");
}

void check_scales(const CacheScales& scales, DType dtype, const AttentionProblem& problem) {
  check_cache_scale("q_scale", scales.q, dtype, problem);
  check_cache_scale("k_scale", scales.k, dtype, problem);
  check_cache_scale("v_scale", scales.v, dtype, problem);
}

void set_scales(const CacheScales& scales, AttentionVarlenParams& params) {
  params.q_scale = attention_scale(scales.q);
  params.k_scale = attention_scale(scales.k);
  params.v_scale = attention_scale(scales.v);
  params.out_scale = static_cast<const float*>(scales.out.data);
}

void add_scales(const CacheScales& scales, AttentionProblem& problem) {
  const auto add = [&](std::size_t offset, const char* name, const TensorView& tensor) {
    if (tensor.given()) {
      problem.add_tensor(offset, {name, &tensor, Use::read});
    }
  };
  static_assert(offsetof(AttentionScale, at) == 0);
  add(offsetof(AttentionVarlenParams, q_scale), "q_scale", scales.q);
  add(offsetof(AttentionVarlenParams, k_scale), "k_scale", scales.k);
  add(offsetof(AttentionVarlenParams, v_scale), "v_scale", scales.v);
  add(offsetof(AttentionVarlenParams, out_scale), "out_scale", scales.out);
}

}  // namespace kiln
