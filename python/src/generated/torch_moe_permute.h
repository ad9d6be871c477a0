// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.moe_permute in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/moe_permute.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct MoePermuteArguments {
  TorchTensor x;
  TorchTensor experts;
  std::int64_t num_experts;
  TorchTensor out;
  TorchTensor offsets;
  TorchTensor inverse;

  MoePermuteArguments(TorchArguments in, bool writes) noexcept
      : x(in.tensor()),
        experts(in.tensor()),
        num_experts(in.integer()),
        out(writes ? in.tensor() : nullptr),
        offsets(writes ? in.tensor() : nullptr),
        inverse(writes ? in.tensor() : nullptr) {}

  MoePermuteSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"x", x.get()},
        {"experts", experts.get()},
        {"out", out.get(), true},
        {"offsets", offsets.get(), true},
        {"inverse", inverse.get(), true},
    }}};
  }
};

// In torch_moe_permute.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_moe_permute(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
