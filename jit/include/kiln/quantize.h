// Quantises activations to 8 bits, with a scale for each group of columns or for each row, which it
// computes from them.
#pragma once

#include <optional>
#include <string>

#include "kiln/activation.h"
#include "kiln/export.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"

namespace KILN_PUBLIC kiln {

struct QuantizeOptions {
  int group = 128;  // columns that share a scale; 0 = all of a row
  // none, or one of the gated ones. The first half of x's columns are the gates, as in vLLM's
  // silu_and_mul; what is quantised is their activation times the second half, in f32.
  Activation activation = Activation::none;
  bool scale_power_of_two = false;  // rounds scales up to powers of two
  // i32 [experts], where x is [experts, capacity, columns]: how many rows of each expert exist. The
  // others are neither read nor written.
  TensorView counts{};
};

// Quantises `x`, [rows, columns] in f16, bf16 or f32, into `out`, of the same shape (or of half the
// columns, where a gated activation comes first) in f8_e4m3, f8_e5m2 or i8. x may also have one
// dimension or three. `scale`, f32, has a row's groups in place of its columns, the last of which
// may be of fewer columns; its strides are free, so that it may be stored by rows or by columns.
// It may also be f8_e8m0: scales are then rounded up to powers of two, and an infinite one is NaN.
// The last stride of x and out must be 1.
//
// Of each group, in f32: scale = max(max(|x|), 1e-4) / M and out = x / scale, rounded to nearest
// even once, where M is 448, 57344 or 127. A NaN counts for nothing in the maximum and is a NaN in
// out, 0 in i8. An infinity has an infinite scale, and makes its group NaN and 0.
void quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
              const QuantizeOptions& options = {}, void* stream = nullptr);
Status try_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                    const QuantizeOptions& options = {}, void* stream = nullptr) noexcept;

// Contiguous views with the shapes of `out` and of `scale`, and null pointers.
TensorView quantize_output(const TensorView& x, DType out_dtype, const QuantizeOptions& options);
TensorView quantize_scale(const TensorView& x, const QuantizeOptions& options);

// Plan::launch takes the pointers of x, out, scale and, if they were given, counts. If all planned
// pointers and strides of x and out were multiples of 16 bytes of x (null pointers count as such),
// new ones must be, too; else of what all of them were multiples of, at least the element's size.
Plan plan_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                   const QuantizeOptions& options = {});
// `plan` is empty unless the Status is ok.
Status try_plan_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                         const QuantizeOptions& options, std::optional<Plan>& plan) noexcept;

// Tells as JSON what a call would run, without running it: see explain in kiln/control.h.
std::string explain_quantize(const TensorView& x, const TensorView& out, const TensorView& scale,
                             const QuantizeOptions& options);

}  // namespace KILN_PUBLIC kiln
