// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.quantize in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/quantize.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct QuantizeArguments {
  TorchTensor x;
  std::optional<std::int64_t> group;
  TorchText activation;
  bool scale_power_of_two;
  TorchText scale_layout;
  TorchTensor counts;
  std::optional<std::int32_t> out_dtype;
  TorchTensor out;
  TorchTensor scale_out;

  QuantizeArguments(TorchArguments in, bool writes) noexcept
      : x(in.tensor()),
        group(in.optional_integer()),
        activation(in.optional_text()),
        scale_power_of_two(in.boolean()),
        scale_layout(in.text()),
        counts(in.optional_tensor()),
        out_dtype(in.optional_dtype()),
        out(writes ? in.tensor() : nullptr),
        scale_out(writes ? in.tensor() : nullptr) {}

  QuantizeSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"x", x.get()},
        {"counts", counts.get()},
        {"out", out.get(), true},
        {"scale_out", scale_out.get(), true},
    }}};
  }

  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {
    options.scale_power_of_two = scale_power_of_two;
  }
};

// In torch_quantize.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_quantize(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
