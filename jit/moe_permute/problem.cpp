#include "jit/moe_permute/problem.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "jit/op/checks.h"
#include "templates/moe_permute/params.h"

namespace kiln {
namespace {

constexpr int kAccessBytes = 16, kMostTopK = 64;
constexpr std::int64_t kMostPairs = std::numeric_limits<std::int32_t>::max();

PairStrides pair_strides(const TensorView& tensor) {
  return {dimension_stride(tensor, 0), dimension_stride(tensor, 1)};
}

// [tokens, top_k], of a limited number of pairs.
void check_pairs(Subject subject, const TensorView& tensor) {
  check_rank(subject, tensor, 2, "[tokens, top_k]");
  std::int64_t pairs = 0;
  const bool too_many = __builtin_mul_overflow(tensor.shape[0], tensor.shape[1], &pairs);
  if (tensor.shape[1] < 1 || tensor.shape[1] > kMostTopK || too_many || pairs > kMostPairs) {
    throw_value(subject,
                "must have 1 to 64 experts for each token and at most 2^31 - 1 pairs, got " +
                    shape_text(tensor));
  }
}

void check_written_integers(const char* name, const TensorView& tensor,
                            std::initializer_list<std::int64_t> shape,
                            const PermuteProblem& problem) {
  const Subject subject{problem.op, name};
  check_tensor(subject, tensor, problem.device_ordinal);
  check_dtype(subject, tensor, DType::i32, "");
  check_shape(subject, tensor, shape);
  check_data(subject, tensor, problem.may_be_null);
  check_written(subject, tensor);
}

// The most bytes that divide rows, their distances and the addresses.
int access_of(const TensorView& x, const TensorView& out, std::int64_t row_bytes) {
  int access = kAccessBytes;
  while (access > 1 &&
         (row_bytes % access != 0 || !rows_admit(x, access) || !rows_admit(out, access))) {
    access /= 2;
  }
  return access;
}

void check_rows(const TensorView& x, const TensorView& out, std::int64_t tokens, std::int64_t top_k,
                PermuteProblem& problem) {
  const Subject of_x{problem.op, "x"}, of_out{problem.op, "out"};
  check_rank(of_x, x, 2, "[tokens, columns]");
  // This comes before out's shape, which a caller who gave none knows nothing of.
  if (x.shape[0] != tokens) {
    throw_value(of_x, "must have a row for each of the " + std::to_string(tokens) +
                          " tokens of experts, got " + shape_text(x));
  }
  if (size_of(x.dtype) == 0 || x.shape[1] > 1 << 24) {
    throw_value(of_x, std::string("must have at most 2^24 columns of a known dtype, got ") +
                          shape_text(x) + " of " + name(x.dtype));
  }
  const std::int64_t row_bytes = x.shape[1] * size_of(x.dtype);
  check_last_stride(of_x, x);
  check_data(of_x, x, problem.may_be_null);
  check_tensor(of_out, out, problem.device_ordinal);
  check_dtype(of_out, out, x.dtype, " like x");
  check_shape(of_out, out, {tokens * top_k, x.shape[1]});
  check_last_stride(of_out, out);
  check_data(of_out, out, problem.may_be_null);
  check_written(of_out, out);
  problem.row_bytes = static_cast<int>(row_bytes);
  problem.traits.access = static_cast<std::uint16_t>(access_of(x, out, row_bytes));
}

}  // namespace

void check_moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                       const TensorView& offsets, const TensorView& inverse,
                       PermuteProblem& problem) {
  problem.device_ordinal = check_tensor({problem.op, "x"}, x, -1);
  const Subject of_experts{problem.op, "experts"}, of_offsets{problem.op, "offsets"};
  check_tensor(of_experts, experts, problem.device_ordinal);
  check_pairs(of_experts, experts);
  if (experts.dtype != DType::i32 && experts.dtype != DType::i64) {
    throw_type(of_experts, std::string("must be int32 or int64, got ") + name(experts.dtype));
  }
  check_data(of_experts, experts, problem.may_be_null);
  const std::int64_t tokens = experts.shape[0], top_k = experts.shape[1];
  check_rows(x, out, tokens, top_k, problem);
  check_tensor(of_offsets, offsets, problem.device_ordinal);
  check_rank(of_offsets, offsets, 1, "[num_experts]");
  if (offsets.shape[0] < 1 || offsets.shape[0] > kMostSortedExperts) {
    throw_value({problem.op, "num_experts"},
                "must be 1 to 512, got " + std::to_string(offsets.shape[0]));
  }
  check_written_integers("offsets", offsets, {offsets.shape[0]}, problem);
  check_written_integers("inverse", inverse, {tokens, top_k}, problem);
  problem.traits.index = experts.dtype;
  problem.tokens = static_cast<int>(tokens), problem.top_k = static_cast<int>(top_k);
  problem.num_experts = static_cast<int>(offsets.shape[0]);
  const int size = size_of(x.dtype);
  PermuteParams p{};
  p.x = x.data, p.experts = experts.data, p.out = out.data;
  p.offsets = static_cast<int*>(offsets.data), p.inverse = static_cast<int*>(inverse.data);
  p.x_row = dimension_stride(x, 0) * size, p.out_row = dimension_stride(out, 0) * size;
  p.experts_at = pair_strides(experts), p.inverse_at = pair_strides(inverse);
  p.offsets_stride = dimension_stride(offsets, 0);
  p.tokens = problem.tokens, p.top_k = problem.top_k, p.num_experts = problem.num_experts;
  p.row_bytes = problem.row_bytes, p.tokens_each = 1;
  CallArguments& arguments = problem.arguments();
  arguments.set_params(p);
  const auto add = [&](std::size_t offset, const CallTensor& tensor, std::size_t bytes) {
    problem.add_tensor(offset, tensor);
    arguments.require_alignment(arguments.pointers() - 1, bytes);
  };
  const std::size_t access = problem.traits.access;
  add(offsetof(PermuteParams, x), {"x", &x, Use::read}, access);
  add(offsetof(PermuteParams, experts), {"experts", &experts, Use::read}, 1);
  add(offsetof(PermuteParams, out), {"out", &out, Use::written}, access);
  add(offsetof(PermuteParams, offsets), {"offsets", &offsets, Use::written}, 1);
  add(offsetof(PermuteParams, inverse), {"inverse", &inverse, Use::written}, 1);
  check_overlaps(problem);
}

namespace {

// Whether `vector` elements at a time may be read or written of the tensor's rows.
bool admits_sums(const TensorView& tensor, int vector) {
  return rows_admit(tensor, std::min(vector * size_of(tensor.dtype), kAccessBytes));
}

void check_sums(const char* name, const TensorView& tensor, const UnpermuteProblem& problem) {
  const Subject subject{problem.op, name};
  check_tensor(subject, tensor, problem.device_ordinal);
  check_float(subject, tensor);
  check_rank(subject, tensor, 2, "[rows, columns]");
  if (tensor.shape[0] > kMostPairs || tensor.shape[1] > 1 << 24) {
    throw_value(subject,
                "must have at most 2^31 - 1 rows of 2^24 columns, got " + shape_text(tensor));
  }
  check_last_stride(subject, tensor);
  check_data(subject, tensor, problem.may_be_null);
}

}  // namespace

void check_moe_unpermute(const TensorView& y, const TensorView& inverse, const TensorView& weights,
                         const TensorView& out, UnpermuteProblem& problem) {
  problem.device_ordinal = check_tensor({problem.op, "y"}, y, -1);
  check_sums("y", y, problem);
  const Subject of_inverse{problem.op, "inverse"}, of_weights{problem.op, "weights"};
  check_tensor(of_inverse, inverse, problem.device_ordinal);
  check_dtype(of_inverse, inverse, DType::i32, "");
  check_pairs(of_inverse, inverse);
  check_data(of_inverse, inverse, problem.may_be_null);
  const std::int64_t tokens = inverse.shape[0], top_k = inverse.shape[1];
  if (weights.given()) {
    check_tensor(of_weights, weights, problem.device_ordinal);
    check_dtype(of_weights, weights, DType::f32, "");
    check_shape(of_weights, weights, {tokens, top_k});
    check_data(of_weights, weights, problem.may_be_null);
  }
  check_sums("out", out, problem);
  check_shape({problem.op, "out"}, out, {tokens, y.shape[1]});
  check_written({problem.op, "out"}, out);
  problem.tokens = static_cast<int>(tokens), problem.top_k = static_cast<int>(top_k);
  problem.columns = static_cast<int>(y.shape[1]);
  UnpermuteTraits& traits = problem.traits;
  traits.input = y.dtype, traits.output = out.dtype, traits.weights = weights.given();
  int vector = 8;
  while (vector > 1 &&
         (y.shape[1] % vector != 0 || !admits_sums(y, vector) || !admits_sums(out, vector))) {
    vector /= 2;
  }
  traits.vector = static_cast<std::uint16_t>(vector);
  UnpermuteParams p{};
  p.y = y.data, p.inverse = static_cast<const int*>(inverse.data);
  p.weights = static_cast<const float*>(weights.data), p.out = out.data;
  p.y_row = dimension_stride(y, 0), p.out_row = dimension_stride(out, 0);
  p.inverse_at = pair_strides(inverse);
  if (weights.given()) p.weights_at = pair_strides(weights);
  p.tokens = problem.tokens, p.top_k = problem.top_k;
  p.rows = static_cast<int>(y.shape[0]), p.columns = problem.columns;
  CallArguments& arguments = problem.arguments();
  arguments.set_params(p);
  const auto add = [&](std::size_t offset, const CallTensor& tensor, int together) {
    if (!tensor.view->given()) return;
    problem.add_tensor(offset, tensor);
    arguments.require_alignment(
        arguments.pointers() - 1,
        static_cast<std::size_t>(std::min(together * size_of(tensor.view->dtype), kAccessBytes)));
  };
  add(offsetof(UnpermuteParams, y), {"y", &y, Use::read}, vector);
  add(offsetof(UnpermuteParams, inverse), {"inverse", &inverse, Use::read}, 1);
  add(offsetof(UnpermuteParams, weights), {"weights", &weights, Use::read}, 1);
  add(offsetof(UnpermuteParams, out), {"out", &out, Use::written}, vector);
  check_overlaps(problem);
}

}  // namespace kiln
