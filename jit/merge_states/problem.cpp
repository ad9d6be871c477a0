#include "jit/merge_states/problem.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "jit/op/checks.h"
#include "templates/merge_states/params.h"

namespace kiln {
namespace {

constexpr double kLog2OfE = 1.4426950408889634;
constexpr int kMergeVectorBytes = 16;

void check_sizes(const TensorView& outs, MergeProblem& problem) {
  const Subject subject{problem.op, "outs"};
  if (outs.shape[0] == 0)
    throw_value(subject, "must have at least one part, got " + shape_text(outs));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::int64_t rows = 0;
  const bool too_many = __builtin_mul_overflow(outs.shape[1], outs.shape[2], &rows);
  if (too_many || rows > kMost || outs.shape[0] > kMost || outs.shape[3] > kMost ||
      std::max(outs.shape[1], outs.shape[2]) > kMost) {
    throw_value(subject,
                "must have at most 2^31 - 1 parts, rows (tokens * heads) and columns, got " +
                    shape_text(outs) + "; split the call");
  }
  problem.parts = static_cast<int>(outs.shape[0]), problem.tokens = static_cast<int>(outs.shape[1]);
  problem.heads = static_cast<int>(outs.shape[2]);
  problem.columns = static_cast<int>(outs.shape[3]);
}

void check_lse(const char* name, const TensorView& tensor,
               std::initializer_list<std::int64_t> shape, const MergeProblem& problem) {
  const Subject subject{problem.op, name};
  check_tensor(subject, tensor, problem.device_ordinal);
  check_dtype(subject, tensor, DType::f32, "");
  check_shape(subject, tensor, shape);
  check_data(subject, tensor, problem.may_be_null);
}

void check_lses(const TensorView& lses, const TensorView& lse, LseLayout layout,
                const MergeProblem& problem) {
  const bool heads_first = layout == LseLayout::heads_tokens;
  const int first = heads_first ? problem.heads : problem.tokens;
  const int second = heads_first ? problem.tokens : problem.heads;
  check_lse("lses", lses, {problem.parts, first, second}, problem);
  if (!lse.given()) return;
  check_lse("lse", lse, {first, second}, problem);
  check_written({problem.op, "lse"}, lse);
}

void check_merged_sinks(const TensorView& sinks, const MergeProblem& problem) {
  if (!sinks.given()) return;
  const Subject subject{problem.op, "sinks"};
  check_tensor(subject, sinks, problem.device_ordinal);
  check_float(subject, sinks);
  check_shape(subject, sinks, {problem.heads});
  check_data(subject, sinks, problem.may_be_null);
}

// Whether `vector` elements at a time may be read or written of the tensor's rows.
bool admits_vector(const TensorView& tensor, int vector) {
  return rows_admit(tensor, std::min(vector * size_of(tensor.dtype), kMergeVectorBytes));
}

int merge_vector(const TensorView& outs, const TensorView& out) {
  int vector = kMergeVectorBytes / size_of(outs.dtype);
  while (vector > 1 && (outs.shape[3] % vector != 0 || !admits_vector(outs, vector) ||
                        !admits_vector(out, vector))) {
    vector /= 2;
  }
  return vector;
}

// Of a tensor whose dimensions `token` and `head` are these; those before them are the parts.
MergeStrides merge_strides(const TensorView& tensor, int token, int head) {
  const bool has_parts = std::min(token, head) > 0;
  return {has_parts ? dimension_stride(tensor, 0) : 0, dimension_stride(tensor, token),
          dimension_stride(tensor, head)};
}

// The order is Plan::launch's.
void set_arguments(const TensorView& outs, const TensorView& lses, const TensorView& out,
                   const TensorView& lse, const MergeStatesOptions& options,
                   MergeProblem& problem) {
  const int head = options.layout == LseLayout::heads_tokens ? 0 : 1;  // of lse
  MergeParams p{};
  p.outs = outs.data, p.lses = static_cast<const float*>(lses.data);
  p.sinks = options.sinks.data;
  p.out = out.data, p.lse = static_cast<float*>(lse.data);
  p.outs_at = merge_strides(outs, 1, 2);
  p.lses_at = merge_strides(lses, 2 - head, 1 + head);
  p.out_at = merge_strides(out, 0, 1);
  if (lse.given()) p.lse_at = merge_strides(lse, 1 - head, head);
  if (options.sinks.given()) p.sinks_stride = dimension_stride(options.sinks, 0);
  p.parts = problem.parts, p.tokens = problem.tokens;
  p.heads = problem.heads, p.columns = problem.columns;
  const double to_log2 = options.base == LseBase::e ? kLog2OfE : 1.0;
  p.to_log2 = static_cast<float>(to_log2), p.from_log2 = static_cast<float>(1 / to_log2);
  CallArguments& arguments = problem.arguments();
  arguments.set_params(p);
  const auto add = [&](std::size_t offset, const CallTensor& tensor, int vector) {
    if (!tensor.view->given()) return;
    problem.add_tensor(offset, tensor);
    arguments.require_alignment(arguments.pointers() - 1,
                                static_cast<std::size_t>(std::min(
                                    vector * size_of(tensor.view->dtype), kMergeVectorBytes)));
  };
  const int vector = problem.traits.vector;
  add(offsetof(MergeParams, outs), {"outs", &outs, Use::read}, vector);
  add(offsetof(MergeParams, lses), {"lses", &lses, Use::read}, 1);
  add(offsetof(MergeParams, out), {"out", &out, Use::written}, vector);
  add(offsetof(MergeParams, lse), {"lse", &lse, Use::written}, 1);
  add(offsetof(MergeParams, sinks), {"sinks", &options.sinks, Use::read}, 1);
}

}  // namespace

void check_merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                        const TensorView& lse, const MergeStatesOptions& options,
                        MergeProblem& problem) {
  const Subject of_outs{problem.op, "outs"}, of_out{problem.op, "out"};
  check_option({problem.op, "base"}, options.base, LseBase::two, "kiln::LseBase");
  check_option({problem.op, "layout"}, options.layout, LseLayout::tokens_heads, "kiln::LseLayout");
  problem.device_ordinal = check_tensor(of_outs, outs, -1);
  check_float(of_outs, outs);
  check_rank(of_outs, outs, 4, "[parts, tokens, heads, head_dim]");
  check_sizes(outs, problem);
  check_last_stride(of_outs, outs);
  check_data(of_outs, outs, problem.may_be_null);
  check_tensor(of_out, out, problem.device_ordinal);
  check_float(of_out, out);
  check_shape(of_out, out, {outs.shape[1], outs.shape[2], outs.shape[3]});
  check_last_stride(of_out, out);
  check_data(of_out, out, problem.may_be_null);
  check_written(of_out, out);
  check_lses(lses, lse, options.layout, problem);
  problem.has_lse = lse.given();
  check_merged_sinks(options.sinks, problem);
  MergeTraits& traits = problem.traits;
  traits.input = outs.dtype, traits.output = out.dtype;
  traits.sinks = options.sinks.dtype;
  traits.vector = static_cast<std::uint16_t>(merge_vector(outs, out));
  set_arguments(outs, lses, out, lse, options, problem);
  check_overlaps(problem);
}

namespace {

// Contiguous, without the first dimension.
TensorView without_parts(const TensorView& tensor, int rank, const char* name, const char* layout) {
  const Subject subject{"merge_states", name};
  check_view(subject, tensor);
  check_rank(subject, tensor, rank, layout);
  TensorView one = tensor;
  one.rank = rank - 1;
  std::copy_n(tensor.shape + 1, one.rank, one.shape);
  return result_like(one);
}

}  // namespace

TensorView merge_states_output(const TensorView& outs) {
  return without_parts(outs, 4, "outs", "[parts, tokens, heads, head_dim]");
}
TensorView merge_states_lse(const TensorView& lses) {
  return without_parts(lses, 3, "lses", "[parts, heads, tokens] or [parts, tokens, heads]");
}

}  // namespace kiln
