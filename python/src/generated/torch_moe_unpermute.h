// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.moe_unpermute in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/moe_unpermute.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct MoeUnpermuteArguments {
  TorchTensor y;
  TorchTensor inverse;
  TorchTensor weights;
  std::optional<std::int32_t> out_dtype;
  TorchTensor out;

  MoeUnpermuteArguments(TorchArguments in, bool writes) noexcept
      : y(in.tensor()),
        inverse(in.tensor()),
        weights(in.optional_tensor()),
        out_dtype(in.optional_dtype()),
        out(writes ? in.tensor() : nullptr) {}

  MoeUnpermuteSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"y", y.get()},
        {"inverse", inverse.get()},
        {"weights", weights.get()},
        {"out", out.get(), true},
    }}};
  }
};

// In torch_moe_unpermute.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_moe_unpermute(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
