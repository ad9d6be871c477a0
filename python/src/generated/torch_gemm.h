// Written by scripts/signatures.py from python/operations.pyi: the arguments of torch.ops.kiln.gemm
// in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/gemm.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct GemmArguments {
  TorchTensor a;
  TorchTensor b;
  bool trans_a;
  bool trans_b;
  TorchTensor bias;
  TorchText activation;
  TorchText gate;
  TorchTensor residual;
  TorchTensor scale_a;
  TorchTensor scale_b;
  double alpha;
  std::optional<std::int32_t> out_dtype;
  TorchText precision;
  TorchText accumulator;
  TorchText epilogue;
  TorchTensor offsets;
  TorchTensor counts;
  std::int64_t expected_rows;
  TorchList config;
  TorchText pdl;
  TorchTensor out;

  GemmArguments(TorchArguments in, bool writes) noexcept
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
        out_dtype(in.optional_dtype()),
        precision(in.optional_text()),
        accumulator(in.text()),
        epilogue(in.optional_text()),
        offsets(in.optional_tensor()),
        counts(in.optional_tensor()),
        expected_rows(in.integer()),
        config(in.optional_list()),
        pdl(in.text()),
        out(writes ? in.tensor() : nullptr) {}

  GemmSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"a", a.get()},
        {"b", b.get()},
        {"bias", bias.get()},
        {"residual", residual.get()},
        {"scale_a", scale_a.get()},
        {"scale_b", scale_b.get()},
        {"out", out.get(), true},
        {"offsets", offsets.get()},
        {"counts", counts.get()},
    }}};
  }

  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {
    using Signature = GemmSignature;
    options.trans_a = trans_a;
    options.trans_b = trans_b;
    options.alpha = float_number(alpha, subject_of<Signature>(Signature::kAlpha));
  }
};

// In torch_gemm.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_gemm(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
