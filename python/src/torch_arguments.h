// The arguments of the operators torch.ops.kiln.*, in the order of their schemas in operators.py.
// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
#pragma once

#include "kiln/kiln.h"
#include "torch_abi.h"

namespace kiln::python {

enum class Results { out, out_and_lse, given };  // given: written to tensors of the caller

struct AttentionArguments {
  TorchTensor q, k, v;
  bool causal;
  TorchList window;
  double softcap;
  std::optional<float> scale;
  TorchTensor sinks, alibi_slopes;
  TorchText layout;
  TorchTensor out, lse;

  AttentionArguments(TorchArguments in, Results results) noexcept
      : q(in.tensor()),
        k(in.tensor()),
        v(in.tensor()),
        causal(in.boolean()),
        window(in.list()),
        softcap(in.number()),
        scale(in.optional_number()),
        sinks(in.optional_tensor()),
        alibi_slopes(in.optional_tensor()),
        layout(in.text()),
        out(results == Results::given ? in.tensor() : nullptr),
        lse(results == Results::given ? in.optional_tensor() : nullptr) {}

  AttentionOptions options() const;
};

struct SdpaArguments {
  TorchTensor query, key, value, attn_mask;
  double dropout_p;
  bool is_causal;
  std::optional<float> scale;
  bool enable_gqa;

  explicit SdpaArguments(TorchArguments in) noexcept
      : query(in.tensor()),
        key(in.tensor()),
        value(in.tensor()),
        attn_mask(in.optional_tensor()),
        dropout_p(in.number()),
        is_causal(in.boolean()),
        scale(in.optional_number()),
        enable_gqa(in.boolean()) {}

  SdpaOptions options() const;
};

struct GemmArguments {
  TorchTensor a, b;
  bool trans_a, trans_b;
  TorchTensor bias;
  TorchText activation, gate;
  TorchTensor residual, scale_a, scale_b;
  double alpha;
  TorchText precision, accumulator, epilogue;
  TorchList config;
  std::optional<std::int32_t> out_dtype;
  TorchTensor out;

  GemmArguments(TorchArguments in, Results results) noexcept
      : a(in.tensor()),
        b(in.tensor()),
        trans_a(in.boolean()),
        trans_b(in.boolean()),
        bias(in.optional_tensor()),
        activation(in.optional_text()),
        gate(in.optional_text()),
        residual(in.optional_tensor()),
        scale_a(in.optional_tensor()),
        scale_b(in.optional_tensor()),
        alpha(in.number()),
        precision(in.optional_text()),
        accumulator(in.text()),
        epilogue(in.optional_text()),
        config(in.optional_list()),
        out_dtype(results == Results::given ? std::nullopt : in.optional_dtype()),
        out(results == Results::given ? in.tensor() : nullptr) {}

  GemmOptions options() const;
  DType asked_dtype() const;  // none where not given
};

}  // namespace kiln::python
