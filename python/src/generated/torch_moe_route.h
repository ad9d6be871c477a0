// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.moe_route in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/moe_route.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct MoeRouteArguments {
  TorchTensor logits;
  std::int64_t top_k;
  TorchText scoring;
  bool renormalize;
  TorchTensor bias;
  std::int64_t groups;
  std::int64_t top_groups;
  double scale;
  TorchTensor weights;
  TorchTensor experts;

  MoeRouteArguments(TorchArguments in, bool writes) noexcept
      : logits(in.tensor()),
        top_k(in.integer()),
        scoring(in.text()),
        renormalize(in.boolean()),
        bias(in.optional_tensor()),
        groups(in.integer()),
        top_groups(in.integer()),
        scale(in.number()),
        weights(writes ? in.tensor() : nullptr),
        experts(writes ? in.tensor() : nullptr) {}

  MoeRouteSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"logits", logits.get()},
        {"bias", bias.get()},
        {"weights", weights.get(), true},
        {"experts", experts.get(), true},
    }}};
  }

  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {
    using Signature = MoeRouteSignature;
    options.renormalize = renormalize;
    options.scale = float_number(scale, subject_of<Signature>(Signature::kScale));
  }
};

// In torch_moe_route.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_moe_route(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
