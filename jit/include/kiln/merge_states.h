// Merges partial results of attention: of parts of the keys, or of devices that hold parts of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kiln/export.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"

namespace KILN_PUBLIC kiln {

// The base of log-sum-exps: the natural one is Kiln's and flash-attn's.
enum class LseBase : std::uint8_t { e, two };
// [heads, tokens] or [tokens, heads], for each part.
enum class LseLayout : std::uint8_t { heads_tokens, tokens_heads };

struct MergeStatesOptions {
  LseBase base = LseBase::e;
  LseLayout layout = LseLayout::heads_tokens;
  // [heads], f32, f16 or bf16, a natural logarithm in both bases: one more logit in the denominator
  // of the merged result, which the merged log-sum-exp does not count.
  TensorView sinks{};
};

// Of `outs`, [parts, tokens, heads, head_dim] in f16, bf16 or f32, the sum weighted by
// exp(lse - max(lse)) over the parts, divided by the sum of the weights, into `out`: [tokens,
// heads, head_dim] in any of the three dtypes. `lses` is f32, [parts, heads, tokens] or [parts,
// tokens, heads]. `lse`, one part of such a tensor, is written with the log-sum-exp of all keys; it
// may be not given. The last stride of outs and out must be 1; all other strides are free.
//
// Everything is computed in f32 and rounded once. A part with a log-sum-exp of -inf counts for
// nothing, even where its result holds NaN, and so does one with +inf, which flash-attn writes for
// rows without a key. A row without any other part gives 0, and -inf. A row gives the same bits in
// every batch.
void merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                  const TensorView& lse = {}, const MergeStatesOptions& options = {},
                  void* stream = nullptr);
Status try_merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                        const TensorView& lse = {}, const MergeStatesOptions& options = {},
                        void* stream = nullptr) noexcept;

// Contiguous views with the shapes of `out`, in the dtype of `outs`, and of `lse`, and null
// pointers.
TensorView merge_states_output(const TensorView& outs);
TensorView merge_states_lse(const TensorView& lses);

// Plan::launch takes the pointers of those of outs, lses, out, lse and sinks that were given to the
// plan function. If all planned pointers and strides were multiples of 16 bytes (null pointers
// count as such) and a row is a multiple of 16 bytes, the new pointers of outs and out must be
// multiples of 16 bytes, too; else of what all of them were multiples of, which is at least the
// element's size.
Plan plan_merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                       const TensorView& lse = {}, const MergeStatesOptions& options = {});
// `plan` is empty unless the Status is ok.
Status try_plan_merge_states(const TensorView& outs, const TensorView& lses, const TensorView& out,
                             const TensorView& lse, const MergeStatesOptions& options,
                             std::optional<Plan>& plan) noexcept;

// Tells as JSON what a call would run, without running it: see explain in kiln/control.h.
std::string explain_merge_states(const TensorView& outs, const TensorView& lses,
                                 const TensorView& out, const TensorView& lse,
                                 const MergeStatesOptions& options);

}  // namespace KILN_PUBLIC kiln
