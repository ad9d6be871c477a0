#include "moe_options.h"

#include <string>

#include "options.h"

namespace kiln::python {
namespace {

// Two dimensions; none of elements where `known` is false.
TensorView rows_view(DType dtype, bool known, std::int64_t rows, std::int64_t columns) {
  return contiguous_view(nullptr, dtype, 0, known ? rows : 0, known ? columns : 0);
}

}  // namespace

MoeScoring moe_scoring(std::string_view name) {
  if (name == "softmax") return MoeScoring::softmax;
  if (name == "sigmoid") return MoeScoring::sigmoid;
  throw_value({"moe_route", "scoring"}, "must be \"softmax\" or \"sigmoid\", got " + quoted(name));
}

TensorView route_result(const TensorView& logits, std::int64_t top_k, DType dtype) {
  if (top_k < 1 || top_k > 32) {
    throw_value({"moe_route", "top_k"}, "must be 1 to 32, got " + std::to_string(top_k));
  }
  return rows_view(dtype, logits.rank == 2, logits.shape[0], top_k);
}

TensorView permuted_rows(const TensorView& x, const TensorView& experts) {
  const bool known = x.rank == 2 && experts.rank == 2 && experts.shape[0] == x.shape[0];
  return rows_view(x.dtype, known, known ? experts.shape[0] * experts.shape[1] : 0, x.shape[1]);
}

TensorView expert_offsets(std::int64_t num_experts) {
  if (num_experts < 1 || num_experts > 512) {
    throw_value({"moe_permute", "num_experts"},
                "must be 1 to 512, got " + std::to_string(num_experts));
  }
  return contiguous_view(nullptr, DType::i32, 0, num_experts);
}

TensorView inverse_rows(const TensorView& experts) {
  return rows_view(DType::i32, experts.rank == 2, experts.shape[0], experts.shape[1]);
}

void check_route_results(const TensorView& logits, const TensorView& weights,
                         const TensorView& experts, std::int64_t top_k) {
  if (logits.rank != 2) return;
  for (const TensorView& view : {weights, experts}) {
    if (view.rank == 2 && view.shape[1] == top_k) continue;
    throw_value({"moe_route", "top_k"},
                "is " + std::to_string(top_k) +
                    ", and so must be the last dimension of weights and experts");
  }
}

void check_expert_offsets(const TensorView& offsets, std::int64_t num_experts) {
  if (offsets.rank == 1 && offsets.shape[0] == num_experts) return;
  throw_value({"moe_permute", "num_experts"},
              "is " + std::to_string(num_experts) + ", and so must be the length of offsets");
}

TensorView unpermuted_rows(const TensorView& y, const TensorView& inverse, DType asked) {
  return rows_view(asked == DType::none ? y.dtype : asked, y.rank == 2 && inverse.rank == 2,
                   inverse.shape[0], y.shape[1]);
}

}  // namespace kiln::python
