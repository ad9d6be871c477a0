// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.layer_norm in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/layer_norm.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct LayerNormArguments {
  TorchTensor x;
  TorchTensor weight;
  TorchTensor bias;
  double eps;
  double weight_offset;
  TorchTensor residual;
  TorchText activation;
  std::optional<std::int32_t> out_dtype;
  TorchTensor residual_out;
  TorchTensor out;

  LayerNormArguments(TorchArguments in, bool writes) noexcept
      : x(in.tensor()),
        weight(in.optional_tensor()),
        bias(in.optional_tensor()),
        eps(in.number()),
        weight_offset(in.number()),
        residual(in.optional_tensor()),
        activation(in.optional_text()),
        out_dtype(in.optional_dtype()),
        residual_out(writes ? in.optional_tensor() : nullptr),
        out(writes ? in.tensor() : nullptr) {}

  LayerNormSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"x", x.get()},
        {"weight", weight.get()},
        {"bias", bias.get()},
        {"residual", residual.get()},
        {"residual_out", residual_out.get(), true},
        {"out", out.get(), true},
    }}};
  }

  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {
    using Signature = LayerNormSignature;
    options.eps = float_number(eps, subject_of<Signature>(Signature::kEps));
    options.weight_offset = float_number(weight_offset, subject_of<Signature>(Signature::kWeightOffset));
  }
};

// In torch_layer_norm.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_layer_norm(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
