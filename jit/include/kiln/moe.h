// What a mixture of experts does beside its products: chooses the experts of tokens, sorts rows by
// experts, and adds their results up. None of these waits for the GPU, and no count of rows, which
// stay on the device, compiles a kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kiln/export.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"
#include "kiln/workspace.h"

namespace KILN_PUBLIC kiln {

enum class MoeScoring : std::uint8_t { softmax, sigmoid };

struct MoeRouteOptions {
  MoeScoring scoring = MoeScoring::softmax;
  bool renormalize = true;  // divides a token's weights by their sum and 1e-20
  float scale = 1.0f;       // is multiplied by weights at last
  // [experts], f32, f16 or bf16: is added to scores where experts are chosen, but not in weights.
  TensorView bias{};
  // Experts form so many groups of neighbours, up to 32, of which the best top_groups are chosen
  // first. A group's score is its best expert's or, with a bias, the sum of its two best.
  int groups = 1, top_groups = 1;
};

// Chooses the best experts of each token by `logits`, [tokens, experts] in f32, f16 or bf16, of up
// to 512 experts. `weights`, f32, and `experts`, i32, are [tokens, top_k], of up to 32 and the best
// first. Scores are softmax(logits) or sigmoid(logits), in f32. Of equal experts, or groups, the
// one with the lower number comes first; softmax without a bias compares logits.
//
// A NaN counts as larger than any number, so that it shows in the weights; experts are always
// different numbers in [0, experts).
void moe_route(const TensorView& logits, const TensorView& weights, const TensorView& experts,
               const MoeRouteOptions& options = {}, void* stream = nullptr);
Status try_moe_route(const TensorView& logits, const TensorView& weights, const TensorView& experts,
                     const MoeRouteOptions& options = {}, void* stream = nullptr) noexcept;

// Sorts the rows of `x`, [tokens, columns] of any DType, by `experts`, i32 or i64 [tokens, top_k]:
// `out`, [tokens * top_k, columns], has the rows of expert 0 in the order of their tokens, then
// those of expert 1, and so on. `offsets`, i32 [num_experts], of up to 512, are where the rows of
// each expert end; `inverse`, i32 [tokens, top_k], which row of out each pair has. A number of an
// expert outside of [0, num_experts), such as -1, stands for none: its inverse is -1, and out has
// fewer rows, so that its last ones are not written. top_k is at most 64. The last stride of x and
// out must be 1. The order, and so every bit, is the same in every launch. With a `workspace`, more
// than 16384 pairs are counted by a launch of their own, which is faster.
void moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                 const TensorView& offsets, const TensorView& inverse,
                 const Workspace& workspace = {}, void* stream = nullptr);
Status try_moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                       const TensorView& offsets, const TensorView& inverse,
                       const Workspace& workspace = {}, void* stream = nullptr) noexcept;

// The inverse of moe_permute for what experts have made of their rows: `out`, [tokens, columns], is
// the sum over k of weights[token, k] * y[inverse[token, k]], in f32, in the order of k, rounded
// once. `y` and `out` are f32, f16 or bf16, `weights` f32 or not given, which stands for ones. An
// inverse outside of y's rows, such as -1, counts for nothing.
void moe_unpermute(const TensorView& y, const TensorView& inverse, const TensorView& weights,
                   const TensorView& out, void* stream = nullptr);
Status try_moe_unpermute(const TensorView& y, const TensorView& inverse, const TensorView& weights,
                         const TensorView& out, void* stream = nullptr) noexcept;

// Plan::launch takes the pointers of those tensors that were given, in the functions' order, and
// that of a bias at last. A plan of moe_permute may need a workspace: Plan::workspace_bytes().
Plan plan_moe_route(const TensorView& logits, const TensorView& weights, const TensorView& experts,
                    const MoeRouteOptions& options = {});
Plan plan_moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                      const TensorView& offsets, const TensorView& inverse);
Plan plan_moe_unpermute(const TensorView& y, const TensorView& inverse, const TensorView& weights,
                        const TensorView& out);
// `plan` is empty unless the Status is ok.
Status try_plan_moe_route(const TensorView& logits, const TensorView& weights,
                          const TensorView& experts, const MoeRouteOptions& options,
                          std::optional<Plan>& plan) noexcept;
Status try_plan_moe_permute(const TensorView& x, const TensorView& experts, const TensorView& out,
                            const TensorView& offsets, const TensorView& inverse,
                            std::optional<Plan>& plan) noexcept;
Status try_plan_moe_unpermute(const TensorView& y, const TensorView& inverse,
                              const TensorView& weights, const TensorView& out,
                              std::optional<Plan>& plan) noexcept;

// Tell as JSON what a call would run, without running it: see explain in kiln/control.h.
std::string explain_moe_route(const TensorView& logits, const TensorView& weights,
                              const TensorView& experts, const MoeRouteOptions& options);
std::string explain_moe_permute(const TensorView& x, const TensorView& experts,
                                const TensorView& out, const TensorView& offsets,
                                const TensorView& inverse);
std::string explain_moe_unpermute(const TensorView& y, const TensorView& inverse,
                                  const TensorView& weights, const TensorView& out);

}  // namespace KILN_PUBLIC kiln
