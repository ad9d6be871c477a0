// Options of the operations from plain values, and the shapes of outputs: what the C entries and
// the operators' kernels have in common. Throws TypeError and ValueError naming the argument.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "frameworks.h"
#include "kiln/kiln.h"

namespace kiln::python {

inline constexpr const char* kAttentionOp = "flash_attention";
inline constexpr const char* kSdpaOp = "scaled_dot_product_attention";
inline constexpr const char* kGemmOp = "gemm";

// `given` is the caller's value as messages show it.
void set_window(AttentionOptions& options, std::int64_t left, std::int64_t right);
[[noreturn]] void refuse_window(const std::string& given);
AttentionLayout attention_layout(std::string_view name);
// The log-sum-exp of q, contiguous, data null.
TensorView lse_of(const TensorView& q, AttentionLayout layout);

[[noreturn]] void refuse_dropout(const std::string& given);

void set_precision(GemmOptions& options, std::string_view name);
Accumulator accumulator_of(DType dtype);
Gate gate_of(std::string_view name);
// Of the config's numbers; the last two may be missing, which is 0.
inline constexpr std::size_t kNeededTileNumbers = 4, kTileNumbers = 6;
GemmTile tile_of(std::span<const std::int64_t, kTileNumbers> values);
[[noreturn]] void refuse_tile(const std::string& given);
// The dtype of a new output; `asked` may be none.
DType gemm_output_dtype(DType input, DType asked);
// What out_dtype may be, and beside an out.
void check_out_dtype(DType asked, const TensorView& out);

// By one of its names.
DType named_dtype(std::string_view name, Subject subject);
[[noreturn]] void refuse_dtype(Subject subject, const std::string& given);
int as_int(std::int64_t value, Subject subject);

}  // namespace kiln::python
