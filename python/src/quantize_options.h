// Options of quantising from plain values, for the C entries and the operators' kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kiln/quantize.h"

namespace kiln::python {

// How the scales of new tensors lie in memory: by rows, or by groups of columns.
enum class ScaleLayout : std::uint8_t { row, column };

// Throw ValueError and TypeError for other values.
ScaleLayout scale_layout(std::string_view name);
Activation gate_activation(std::string_view name);
int scale_group(std::int64_t group);
// What out_dtype may be, and beside an out.
void check_quantized_dtype(DType asked, const TensorView& out);

// The view with its last two dimensions exchanged: the scales of `column` lie in memory like this.
TensorView swapped(const TensorView& view);

}  // namespace kiln::python
