// RMS norm and layer norm over the last dimension. A residual can be added before the norm, and an
// activation applied after it.
#pragma once

#include <optional>
#include <string>

#include "kiln/activation.h"
#include "kiln/export.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"
#include "kiln/workspace.h"

namespace KILN_PUBLIC kiln {

struct NormOptions {
  std::optional<float> eps{};  // default 1e-6 for rms_norm, 1e-5 for layer_norm
  // Added to each weight, where there is one: 1 for models with weights around 0 (Gemma).
  float weight_offset = 0.0f;
  // Has x's shape and dtype. It is added to x in f32, and the sum is not rounded before the norm.
  // If residual_out is given, the sum is written to it, rounded once; it may be residual's own
  // memory.
  TensorView residual{};
  TensorView residual_out{};
  Activation activation = Activation::none;  // of the result; it must not be a gated one
  // A row that takes more than 16384 accesses, or 4096 before sm_90, is computed in two launches
  // that need it. An access is 16 bytes, or less where the columns, the strides or the addresses
  // are no multiples of that: down to one element, so that 4097 columns may need it.
  Workspace workspace{};
};

// With s = x + residual, in f32 and rounded once, into out:
//   rms_norm     activation(s * rsqrt(mean(s^2) + eps) * (weight + weight_offset))
//   layer_norm   activation((s - mean(s)) * rsqrt(var(s) + eps) * (weight + weight_offset) + bias)
// over the last dimension; the variance is the biased one. x is [.., columns] of 1 to 5 dimensions,
// f16, bf16 or f32, with 1 to 65536 columns and a last stride of 1. Its rows are equally spaced in
// memory, or form groups of equally many rows that are, as many in all tensors. residual and
// residual_out have x's shape and dtype; out has x's shape and any of the three dtypes. `weight`
// and `bias` are [columns], each with any of the three dtypes; without them nothing is multiplied
// or added, weight_offset neither. out and residual_out may be the same memory as x or residual,
// with the same dtype and strides. Any other overlap is refused if it is certain.
//
// Up to 16384 columns (8192 in f32), a row gives the same bits in every batch.
void rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
              const NormOptions& options = {}, void* stream = nullptr);
void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& out, const NormOptions& options = {}, void* stream = nullptr);
Status try_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                    const NormOptions& options = {}, void* stream = nullptr) noexcept;
Status try_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                      const TensorView& out, const NormOptions& options = {},
                      void* stream = nullptr) noexcept;

// A contiguous view with the shape of `out` and a null pointer; x's dtype if `out_dtype` is none.
TensorView norm_output(const TensorView& x, DType out_dtype = DType::none);

// Plan::launch takes the pointers of those of x, weight, bias, out, residual and residual_out that
// were given to the plan function. If all planned pointers and strides were multiples of 16 bytes
// (null pointers count as such) and a row is a multiple of 16 bytes, the new pointers must be
// multiples of 16 bytes, too; else of what all of them were multiples of, which is at least the
// element's size.
Plan plan_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                   const NormOptions& options = {});
Plan plan_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                     const TensorView& out, const NormOptions& options = {});
// `plan` is empty unless the Status is ok.
Status try_plan_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                         const NormOptions& options, std::optional<Plan>& plan) noexcept;
Status try_plan_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                           const TensorView& out, const NormOptions& options,
                           std::optional<Plan>& plan) noexcept;

// Tells as JSON what a call would run, without running it: see explain in kiln/control.h.
std::string explain_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                             const NormOptions& options);
std::string explain_layer_norm(const TensorView& x, const TensorView& weight,
                               const TensorView& bias, const TensorView& out,
                               const NormOptions& options);

}  // namespace KILN_PUBLIC kiln
