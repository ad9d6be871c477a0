#include "jit/attention/problem.h"

#include <algorithm>

#include "jit/attention/tensor_checks.h"
#include "jit/op/checks.h"
#include "templates/attention/params.h"

namespace kiln {
namespace {

// Dimensions of q, k, v and out by meaning, whatever the layout.
struct Axes {
  int row, head;
};
Axes axes(AttentionLayout layout) {
  return layout == AttentionLayout::bshd ? Axes{1, 2} : Axes{2, 1};
}

void check_tensors(const TensorView& q, const TensorView& k, const TensorView& v,
                   const TensorView& out, const AttentionOptions& options,
                   AttentionProblem& problem) {
  const AttentionNames& names = problem.names;
  check_layout(options.layout, names.op);
  for (auto [argument, scale] : {std::pair{"q_scale", &options.q_scale},
                                 {"k_scale", &options.k_scale},
                                 {"v_scale", &options.v_scale}}) {
    if (!scale->given()) continue;
    throw_value({names.op, argument}, std::string("is of 8-bit q, k and v, and q is ") +
                                          name(q.dtype) + "; leave it out");
  }
  const int ordinal = problem.device_ordinal = check_tensor({names.op, names.q}, q, -1);
  if (!is_half(q.dtype)) {
    throw_type({names.op, names.q}, std::string("must be float16 or bfloat16, got ") +
                                        name(q.dtype) + "; cast the inputs to one of them");
  }
  const Axes ax = axes(options.layout);
  const char* layout = layout_text(options.layout);
  for (auto [argument, tensor] :
       {std::pair{names.q, &q}, {names.k, &k}, {names.v, &v}, {"out", &out}}) {
    const Subject subject{names.op, argument};
    if (tensor != &q) check_tensor(subject, *tensor, ordinal);
    check_dtype(subject, *tensor, q.dtype, " like q");
    check_rank(subject, *tensor, 4, layout);
    check_last_stride(subject, *tensor);
    check_data(subject, *tensor, problem.may_be_null);
  }
  check_written({names.op, "out"}, out);
  const std::int64_t heads = q.shape[ax.head], heads_kv = k.shape[ax.head];
  check_head_dims({names.op, names.q}, {names.op, names.v}, q.shape[3], v.shape[3]);
  if (k.shape[0] != q.shape[0] || k.shape[3] != q.shape[3]) {
    throw_value({names.op, names.k}, std::string("must have the batch and head dim of ") + names.q +
                                         ", which is " + shape_text(q) + "; it is " +
                                         shape_text(k) + " as " + layout);
  }
  if (v.shape[0] != k.shape[0] || v.shape[1] != k.shape[1] || v.shape[2] != k.shape[2]) {
    throw_value({names.op, names.v}, std::string("must have the batch, length and heads of ") +
                                         names.k + ", which is " + shape_text(k) + "; it is " +
                                         shape_text(v));
  }
  check_heads({names.op, names.q}, names.k, heads, heads_kv);
  check_shape({names.op, "out"}, out, {q.shape[0], q.shape[1], q.shape[2], v.shape[3]});
  problem.batch = check_length({names.op, names.q}, q.shape[0], "batch entries");
  problem.heads = check_length({names.op, names.q}, heads, "heads");
  problem.heads_kv = static_cast<int>(heads_kv);
  problem.len_q = check_length({names.op, names.q}, q.shape[ax.row], "rows");
  problem.keys = problem.len_kv = check_length({names.op, names.k}, k.shape[ax.row], "rows");
}

void set_params(const TensorView& q, const TensorView& k, const TensorView& v,
                const TensorView& out, const TensorView& lse, const AttentionOptions& options,
                AttentionProblem& problem) {
  const Axes ax = axes(options.layout);
  AttentionParams p{};
  p.q = q.data, p.k = k.data, p.v = v.data, p.out = out.data;
  p.lse = static_cast<float*>(lse.data);
  p.q_batch = q.strides[0], p.q_row = q.strides[ax.row], p.q_head = q.strides[ax.head];
  p.k_batch = k.strides[0], p.k_row = k.strides[ax.row], p.k_head = k.strides[ax.head];
  p.v_batch = v.strides[0], p.v_row = v.strides[ax.row], p.v_head = v.strides[ax.head];
  p.out_batch = out.strides[0], p.out_row = out.strides[ax.row], p.out_head = out.strides[ax.head];
  p.lse_batch = lse.strides[0], p.lse_head = lse.strides[1];
  p.batch = problem.batch, p.heads = problem.heads;
  p.heads_kv = problem.heads_kv;
  p.len_q = problem.len_q, p.len_kv = problem.len_kv;
  p.splits = 1;
  p.scale = checked_scale({problem.names.op, "scale"}, options.scale, q.shape[3]);
  problem.arguments().set_params(p);
  // A query's row is read by the thread blocks that compute the same row of out, before it is
  // written.
  problem.add_tensor(offsetof(AttentionParams, q), {problem.names.q, &q, Use::replaceable});
  problem.add_tensor(offsetof(AttentionParams, k), {problem.names.k, &k, Use::read});
  problem.add_tensor(offsetof(AttentionParams, v), {problem.names.v, &v, Use::read});
  problem.add_tensor(offsetof(AttentionParams, out), {"out", &out, Use::written});
  if (lse.given()) {
    problem.add_tensor(offsetof(AttentionParams, lse), {"lse", &lse, Use::written});
  }
}

}  // namespace

void check_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& out, const TensorView& lse, const AttentionOptions& options,
                     AttentionProblem& problem) {
  check_tensors(q, k, v, out, options, problem);
  if (lse.given()) check_lse(lse, {problem.batch, problem.heads, problem.len_q}, problem);
  set_params(q, k, v, out, lse, options, problem);
  AttentionTraits& traits = problem.traits;
  traits.q = q.dtype, traits.k = k.dtype, traits.v = v.dtype, traits.out = out.dtype;
  traits.head_dim = static_cast<std::uint16_t>(q.shape[3]);
  traits.head_dim_v = static_cast<std::uint16_t>(v.shape[3]);
  settle_alignment(q, k, v, out, problem);
  add_variants(options, problem);
  check_overlaps(problem);
}

TensorView flash_attention_output(const TensorView& q, const TensorView& v) {
  constexpr const char* kLayouts =
      "[batch, length, heads, head_dim] or [batch, heads, length, head_dim]";
  for (auto [name, tensor] : {std::pair{"q", &q}, {"v", &v}}) {
    check_view({AttentionNames().op, name}, *tensor);
    check_rank({AttentionNames().op, name}, *tensor, 4, kLayouts);
  }
  TensorView out = contiguous_view(nullptr, output_dtype(q.dtype), q.device_ordinal, q.shape[0],
                                   q.shape[1], q.shape[2], v.shape[3]);
  out.device_type = q.device_type;
  return out;
}

TensorView flash_attention_lse_output(const TensorView& q, AttentionLayout layout) {
  check_layout(layout, AttentionNames().op);
  check_view({AttentionNames().op, "q"}, q);
  check_rank({AttentionNames().op, "q"}, q, 4, layout_text(layout));
  const Axes ax = axes(layout);
  TensorView lse = contiguous_view(nullptr, DType::f32, q.device_ordinal, q.shape[0],
                                   q.shape[ax.head], q.shape[ax.row]);
  lse.device_type = q.device_type;
  return lse;
}

}  // namespace kiln
