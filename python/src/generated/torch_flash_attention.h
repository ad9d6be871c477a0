// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.flash_attention in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/flash_attention.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct FlashAttentionArguments {
  TorchTensor q;
  TorchTensor k;
  TorchTensor v;
  bool causal;
  bool top_left;
  TorchList window;
  double softcap;
  std::optional<double> scale;
  TorchTensor attn_mask;
  TorchTensor sinks;
  TorchTensor alibi_slopes;
  TorchTensor q_scale;
  TorchTensor k_scale;
  TorchTensor v_scale;
  TorchText layout;
  TorchTensor out;
  TorchTensor lse;

  FlashAttentionArguments(TorchArguments in, bool writes) noexcept
      : q(in.tensor()),
        k(in.tensor()),
        v(in.tensor()),
        causal(in.boolean()),
        top_left(in.boolean()),
        window(in.list()),
        softcap(in.number()),
        scale(in.optional_number()),
        attn_mask(in.optional_tensor()),
        sinks(in.optional_tensor()),
        alibi_slopes(in.optional_tensor()),
        q_scale(in.optional_tensor()),
        k_scale(in.optional_tensor()),
        v_scale(in.optional_tensor()),
        layout(in.text()),
        out(writes ? in.tensor() : nullptr),
        lse(writes ? in.optional_tensor() : nullptr) {}

  FlashAttentionSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"q", q.get()},
        {"k", k.get()},
        {"v", v.get()},
        {"attn_mask", attn_mask.get()},
        {"sinks", sinks.get()},
        {"alibi_slopes", alibi_slopes.get()},
        {"q_scale", q_scale.get()},
        {"k_scale", k_scale.get()},
        {"v_scale", v_scale.get()},
        {"out", out.get(), true},
        {"lse", lse.get(), true},
    }}};
  }

  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {
    using Signature = FlashAttentionSignature;
    options.causal = causal;
    options.top_left = top_left;
    options.softcap = float_number(softcap, subject_of<Signature>(Signature::kSoftcap));
    options.scale = float_number(scale, subject_of<Signature>(Signature::kScale));
  }
};

// In torch_flash_attention.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_flash_attention(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
