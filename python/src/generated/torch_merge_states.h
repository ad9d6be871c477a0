// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.merge_states in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/merge_states.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct MergeStatesArguments {
  TorchTensor outs;
  TorchTensor lses;
  TorchText base;
  TorchText layout;
  TorchTensor sinks;
  TorchTensor out;
  TorchTensor lse;

  MergeStatesArguments(TorchArguments in, bool writes) noexcept
      : outs(in.tensor()),
        lses(in.tensor()),
        base(in.text()),
        layout(in.text()),
        sinks(in.optional_tensor()),
        out(writes ? in.tensor() : nullptr),
        lse(writes ? in.optional_tensor() : nullptr) {}

  MergeStatesSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"outs", outs.get()},
        {"lses", lses.get()},
        {"sinks", sinks.get()},
        {"out", out.get(), true},
        {"lse", lse.get(), true},
    }}};
  }
};

// In torch_merge_states.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_merge_states(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
