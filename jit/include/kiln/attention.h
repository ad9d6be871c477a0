// Attention: softmax(scale * q k^T) v, with masks and variants, also with PyTorch's signature.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kiln/export.h"
#include "kiln/plan.h"
#include "kiln/status.h"
#include "kiln/tensor.h"
#include "kiln/variant.h"
#include "kiln/workspace.h"

namespace KILN_PUBLIC kiln {

enum class AttentionLayout { bshd, bhsd };

struct AttentionOptions {
  bool causal = false;    // aligned bottom-right: query i sees keys up to i + len_kv - len_q
  bool top_left = false;  // with causal: query i sees keys up to i instead; not with a window
  // Keys visible before and after the diagonal one, both inclusive; -1 = open.
  std::int64_t window_left = -1, window_right = -1;
  float softcap = 0.0f;  // 0 = none; else cap * tanh(logit / cap) after the scale; at most 1000
  std::optional<float> scale{};  // default 1 / sqrt(head_dim)
  TensorView sinks{};            // [heads], f32, f16 or bf16: one more logit in the denominator
  TensorView alibi_slopes{};     // [heads] or [batch, heads], f32: logit -= slope * |q - kv|
  // [batch or 1, heads or 1, len_q or 1, len_kv or 1] with any strides; expanded dimensions
  // (stride 0) cost no memory. boolean: true means visible. f32 or q's dtype: added to the logits.
  TensorView attn_mask{};
  // f32, of 8-bit k and v: what elements of q, k and v are multiples of. One for all ([] or [1]),
  // one for each KV head ([heads_kv]), or those of each sequence ([batch, heads_kv]), with any
  // strides, 0 included; left out, 1. q_scale is of the query heads that share the KV head.
  TensorView q_scale{}, k_scale{}, v_scale{};
  const BoundVariant* variant = nullptr;
  AttentionLayout layout = AttentionLayout::bshd;
  Workspace workspace{};
};

// out = softmax(scale * q k^T, options) v.
//   q [batch, len_q, heads, head_dim], k [batch, len_kv, heads_kv, head_dim],
//   v [batch, len_kv, heads_kv, head_dim_v], out [batch, len_q, heads, head_dim_v]
// (bhsd: heads before lengths). All four have the same dtype, f16 or bf16; or q, k and v are
// f8_e4m3 or f8_e5m2 alike, with the options' scales and without top_left and attn_mask, and out is
// f16 or bf16. heads must be a multiple of heads_kv, and head dims must be multiples of 8 up to
// 256, or all 512. The last stride must be 1; the others are free. `lse` may be left out; it is f32
// [batch, heads, len_q] with a last stride of 1, the natural logarithm, without the sink. A row
// without visible keys gives out = 0 and lse = -infinity.
// The kernels of compute capability 9.0 for 8-bit q also round weights to f8_e4m3 before they
// multiply the values; the others compute with f16.
// A row with a logit of 2^26 (f16) or 2^30 (bf16) or more, scaled and with its mask, may give NaN
// or 0 instead of the textbook's result, and so may one whose products overflow f32. A NaN in
// attn_mask makes its row NaN. out may be q itself, with its shape and strides; otherwise out and
// lse must not overlap an input or each other: std::invalid_argument where addresses and strides
// prove that they do.
void flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     const TensorView& out, const TensorView& lse,
                     const AttentionOptions& options = {}, void* stream = nullptr);
Status try_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                           const TensorView& out, const TensorView& lse,
                           const AttentionOptions& options = {}, void* stream = nullptr) noexcept;

struct SdpaOptions {
  bool is_causal = false;        // aligned top-left: query i sees keys up to i; not with attn_mask
  std::optional<float> scale{};  // default 1 / sqrt(head_dim)
  bool enable_gqa = false;       // heads of key and value divide query's, instead of being equal
  Workspace workspace{};         // not used if the batch takes several launches
};

// PyTorch's scaled_dot_product_attention, forward and without dropout:
//   query [batch.., heads, len_q, head_dim], key [batch.., heads, len_kv, head_dim],
//   value [batch.., heads, len_kv, head_dim_v], out [batch.., heads, len_q, head_dim_v]
// of 2 to 5 dimensions, f16 or bf16, with a last stride of 1. Batch dimensions, and without
// enable_gqa also heads, are broadcast where they are 1 or missing. `attn_mask` may be left out; it
// broadcasts to [batch.., heads, len_q, len_kv] and is read with its own strides, never expanded.
// It is boolean (true means visible), or f32 or query's dtype and added to the logits. A row
// without visible keys gives 0. If two batch dimensions cannot be treated as one because of their
// strides, each entry of the first one takes a launch of its own.
void scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                  const TensorView& value, const TensorView& attn_mask,
                                  const TensorView& out, const SdpaOptions& options = {},
                                  void* stream = nullptr);
Status try_scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                        const TensorView& value, const TensorView& attn_mask,
                                        const TensorView& out, const SdpaOptions& options = {},
                                        void* stream = nullptr) noexcept;

// A contiguous view with the shape of `out` for these inputs and a null pointer, of q's dtype, or
// of bf16 where that has 8 bits. Throws as flash_attention does.
TensorView flash_attention_output(const TensorView& q, const TensorView& v);
// The same for `lse`: f32, [batch, heads, len_q].
TensorView flash_attention_lse_output(const TensorView& q, AttentionLayout layout);
TensorView scaled_dot_product_attention_output(const TensorView& query, const TensorView& key,
                                               const TensorView& value, bool enable_gqa = false);

// Plan::launch takes the pointers of those of q, k, v, out, lse, alibi_slopes, attn_mask and sinks
// that were given to plan_flash_attention, and then those of the variant's tensors. If the planned
// pointers and strides of q, k, v and out were multiples of 16 bytes (null pointers count as such),
// the new pointers of these four must be, too. Other pointers must be multiples of their element's
// size, and an attn_mask with an even number of keys of stride 1 and even other strides must be a
// multiple of two elements.
Plan plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                          const TensorView& out, const TensorView& lse,
                          const AttentionOptions& options = {});
// `plan` is empty unless the Status is ok.
Status try_plan_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                const TensorView& out, const TensorView& lse,
                                const AttentionOptions& options,
                                std::optional<Plan>& plan) noexcept;

// Tells as JSON what a call would run, without running it: see explain in kiln/control.h.
std::string explain_flash_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                                    const TensorView& out, const TensorView& lse,
                                    const AttentionOptions& options);
std::string explain_scaled_dot_product_attention(const TensorView& query, const TensorView& key,
                                                 const TensorView& value,
                                                 const TensorView& attn_mask, const TensorView& out,
                                                 const SdpaOptions& options = {});

}  // namespace KILN_PUBLIC kiln
