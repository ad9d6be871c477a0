// RMS norm and layer norm over the last dimension, with the sum of a residual before and an
// activation behind.
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
  float weight_offset = 0.0f;  // added to each weight: 1 where weights are kept around 0 (Gemma)
  // Added to x, in f32 and unrounded: like x. `residual_out`, when given, is written with the sum,
  // rounded once; it may be residual's own memory.
  TensorView residual{};
  TensorView residual_out{};
  Activation activation = Activation::none;  // of the result; none of the gated ones
  Workspace workspace{};
};

// With s = x + residual, in f32 and rounded once, into out:
//   rms_norm     activation(s * rsqrt(mean(s^2) + eps) * (weight + weight_offset))
//   layer_norm   activation((s - mean(s)) * rsqrt(var(s) + eps) * (weight + weight_offset) + bias)
// over the last dimension; the variance is the biased one. x [.., columns] of 1 to 5 dimensions,
// f16, bf16 or f32, of 1 to 65536 columns with a unit last stride, whose rows lie in memory as one
// run or as runs of equal length; residual and residual_out like x; out of x's shape and any of the
// three dtypes. `weight` and `bias`, unless not given (1 and 0), are [columns], each of any of the
// three dtypes. out and residual_out may each be the very memory of x or residual, with the same
// dtype and strides; any other overlap is refused where it is certain.
//
// A row gives the same bits in whatever batch it stands, up to 16384 columns.
void rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
              const NormOptions& options = {}, void* stream = nullptr);
void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                const TensorView& out, const NormOptions& options = {}, void* stream = nullptr);
Status try_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                    const NormOptions& options = {}, void* stream = nullptr) noexcept;
Status try_layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias,
                      const TensorView& out, const NormOptions& options = {},
                      void* stream = nullptr) noexcept;

// The shape of `out`, contiguous, data null; of x's dtype where `out_dtype` is none.
TensorView norm_output(const TensorView& x, DType out_dtype = DType::none);

// Plan::launch takes the pointers of x, weight, bias, out, residual, residual_out, of these what
// was given. A pointer is a multiple of 16 bytes where all pointers and strides were while planning
// (null counts as such) and 16 bytes are a whole part of a row; else of what they all were
// multiples of, at least the element's size.
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

// What a call would run, without running it, as JSON: see explain in kiln/control.h.
std::string explain_rms_norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                             const NormOptions& options);
std::string explain_layer_norm(const TensorView& x, const TensorView& weight,
                               const TensorView& bias, const TensorView& out,
                               const NormOptions& options);

}  // namespace KILN_PUBLIC kiln
