// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.scaled_dot_product_attention in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/scaled_dot_product_attention.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct ScaledDotProductAttentionArguments {
  TorchTensor query;
  TorchTensor key;
  TorchTensor value;
  TorchTensor attn_mask;
  double dropout_p;
  bool is_causal;
  std::optional<double> scale;
  bool enable_gqa;

  explicit ScaledDotProductAttentionArguments(TorchArguments in) noexcept
      : query(in.tensor()),
        key(in.tensor()),
        value(in.tensor()),
        attn_mask(in.optional_tensor()),
        dropout_p(in.number()),
        is_causal(in.boolean()),
        scale(in.optional_number()),
        enable_gqa(in.boolean()) {}

  ScaledDotProductAttentionSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"query", query.get()},
        {"key", key.get()},
        {"value", value.get()},
        {"attn_mask", attn_mask.get()},
    }}};
  }

  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {
    using Signature = ScaledDotProductAttentionSignature;
    options.dropout_p = float_number(dropout_p, subject_of<Signature>(Signature::kDropoutP));
    options.is_causal = is_causal;
    options.scale = float_number(scale, subject_of<Signature>(Signature::kScale));
    options.enable_gqa = enable_gqa;
  }
};

// In torch_scaled_dot_product_attention.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_scaled_dot_product_attention(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
