// Options of the operations of a mixture of experts from plain values, and the shapes of their
// results, for the C entries and the operators' kernels.
#pragma once

#include <cstdint>
#include <string_view>

#include "kiln/moe.h"

namespace kiln::python {

// Throws ValueError for other names.
MoeScoring moe_scoring(std::string_view name);

// Contiguous views of new tensors. Where an input has another rank than the operation takes, which
// its checks will say, they are empty. They throw ValueError for numbers that no tensor has.
TensorView route_result(const TensorView& logits, std::int64_t top_k, DType dtype);
TensorView permuted_rows(const TensorView& x, const TensorView& experts);
TensorView expert_offsets(std::int64_t num_experts);
TensorView inverse_rows(const TensorView& experts);
TensorView unpermuted_rows(const TensorView& y, const TensorView& inverse, DType asked);

// Throw ValueError where results that were given do not have the size that a number says.
void check_route_results(const TensorView& logits, const TensorView& weights,
                         const TensorView& experts, std::int64_t top_k);
void check_expert_offsets(const TensorView& offsets, std::int64_t num_experts);

}  // namespace kiln::python
