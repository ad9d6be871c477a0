// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.append_kv in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/append_kv.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct AppendKvArguments {
  TorchTensor key;
  TorchTensor value;
  TorchTensor slot_mapping;
  TorchTensor k_scale;
  TorchTensor v_scale;
  TorchTensor query;
  TorchTensor q_weight;
  TorchTensor k_weight;
  double eps;
  TorchTensor positions;
  TorchTensor cos;
  TorchTensor sin;
  bool interleaved;
  TorchTensor k_cache;
  TorchTensor v_cache;
  TorchTensor query_out;

  AppendKvArguments(TorchArguments in, bool writes) noexcept
      : key(in.tensor()),
        value(in.tensor()),
        slot_mapping(in.tensor()),
        k_scale(in.optional_tensor()),
        v_scale(in.optional_tensor()),
        query(in.optional_tensor()),
        q_weight(in.optional_tensor()),
        k_weight(in.optional_tensor()),
        eps(in.number()),
        positions(in.optional_tensor()),
        cos(in.optional_tensor()),
        sin(in.optional_tensor()),
        interleaved(in.boolean()),
        k_cache(writes ? in.tensor() : nullptr),
        v_cache(writes ? in.tensor() : nullptr),
        query_out(writes ? in.optional_tensor() : nullptr) {}

  AppendKvSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"key", key.get()},
        {"value", value.get()},
        {"k_cache", k_cache.get(), true},
        {"v_cache", v_cache.get(), true},
        {"slot_mapping", slot_mapping.get()},
        {"k_scale", k_scale.get()},
        {"v_scale", v_scale.get()},
        {"query", query.get()},
        {"query_out", query_out.get(), true},
        {"q_weight", q_weight.get()},
        {"k_weight", k_weight.get()},
        {"positions", positions.get()},
        {"cos", cos.get()},
        {"sin", sin.get()},
    }}};
  }

  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {
    using Signature = AppendKvSignature;
    options.eps = float_number(eps, subject_of<Signature>(Signature::kEps));
    options.interleaved = interleaved;
  }
};

// In torch_append_kv.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_append_kv(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
