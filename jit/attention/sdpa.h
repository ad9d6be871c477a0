// PyTorch's scaled_dot_product_attention as calls of flash_attention: its broadcasting, its rules.
#pragma once

#include "jit/attention/problem.h"

namespace kiln {

inline constexpr AttentionNames kSdpaNames = {"scaled_dot_product_attention", "query", "key",
                                              "value"};

// A call as `slices` launches over the outermost dimension: one, unless two batch dimensions do not
// lie in memory as one.
struct SdpaCall {
  TensorView query, key, value, out;  // [batch, heads, length, head_dim], of the first slice
  AttentionOptions options;           // its attn_mask likewise
  int slices = 1;

  // Makes the views those of the next slice.
  void advance();
  // Whether the kernel of one slice serves all: their tensors begin alike, as far as vectors go.
  bool are_alike() const;

 private:
  friend SdpaCall check_sdpa(const TensorView&, const TensorView&, const TensorView&,
                             const TensorView&, const TensorView&, const SdpaOptions&);
  std::array<std::int64_t, 5> steps_{};  // bytes to the next slice: of query, key, value, mask, out
};

// Throws std::invalid_argument or TypeError for what PyTorch would refuse, too; check_attention
// does for the rest.
SdpaCall check_sdpa(const TensorView& query, const TensorView& key, const TensorView& value,
                    const TensorView& attn_mask, const TensorView& out, const SdpaOptions& options);

}  // namespace kiln
