// Written by scripts/signatures.py from python/operations.pyi: the arguments of
// torch.ops.kiln.flash_attention_varlen in its schemas' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "python/src/generated/flash_attention_varlen.h"
#include "python/src/options.h"
#include "python/src/torch_abi.h"
#include "python/src/torch_arguments.h"
#include "python/src/torch_tensors.h"

namespace kiln::python {

// Taken whole before anything is looked at, so that whatever happens then, all of it is freed.
struct FlashAttentionVarlenArguments {
  TorchTensor q;
  TorchTensor k;
  TorchTensor v;
  TorchTensor cu_seqlens_q;
  std::int64_t max_seqlen_q;
  std::int64_t max_seqlen_k;
  TorchTensor cu_seqlens_k;
  TorchTensor seqused_k;
  TorchTensor block_table;
  TorchTensor kv_indptr;
  TorchTensor kv_indices;
  bool causal;
  TorchList window;
  TorchTensor tree_mask;
  double softcap;
  std::optional<double> scale;
  TorchTensor sinks;
  TorchTensor alibi_slopes;
  TorchTensor q_scale;
  TorchTensor k_scale;
  TorchTensor v_scale;
  std::int64_t cp_world;
  std::int64_t cp_rank;
  std::int64_t cp_interleave;
  TorchTensor cp_seqused_k_total;
  TorchTensor out_scale;
  std::int64_t num_splits;
  TorchTensor plan;
  TorchTensor out;
  TorchTensor lse;

  FlashAttentionVarlenArguments(TorchArguments in, bool writes) noexcept
      : q(in.tensor()),
        k(in.tensor()),
        v(in.tensor()),
        cu_seqlens_q(in.tensor()),
        max_seqlen_q(in.integer()),
        max_seqlen_k(in.integer()),
        cu_seqlens_k(in.optional_tensor()),
        seqused_k(in.optional_tensor()),
        block_table(in.optional_tensor()),
        kv_indptr(in.optional_tensor()),
        kv_indices(in.optional_tensor()),
        causal(in.boolean()),
        window(in.list()),
        tree_mask(in.optional_tensor()),
        softcap(in.number()),
        scale(in.optional_number()),
        sinks(in.optional_tensor()),
        alibi_slopes(in.optional_tensor()),
        q_scale(in.optional_tensor()),
        k_scale(in.optional_tensor()),
        v_scale(in.optional_tensor()),
        cp_world(in.integer()),
        cp_rank(in.integer()),
        cp_interleave(in.integer()),
        cp_seqused_k_total(in.optional_tensor()),
        out_scale(in.optional_tensor()),
        num_splits(in.integer()),
        plan(in.optional_tensor()),
        out(writes ? in.tensor() : nullptr),
        lse(writes ? in.optional_tensor() : nullptr) {}

  FlashAttentionVarlenSignature::Tensors<TorchArgument> tensors() const {
    return {{{
        {"q", q.get()},
        {"k", k.get()},
        {"v", v.get()},
        {"cu_seqlens_q", cu_seqlens_q.get()},
        {"cu_seqlens_k", cu_seqlens_k.get()},
        {"seqused_k", seqused_k.get()},
        {"block_table", block_table.get()},
        {"kv_indptr", kv_indptr.get()},
        {"kv_indices", kv_indices.get()},
        {"causal", nullptr},
        {"tree_mask", tree_mask.get()},
        {"sinks", sinks.get()},
        {"alibi_slopes", alibi_slopes.get()},
        {"q_scale", q_scale.get()},
        {"k_scale", k_scale.get()},
        {"v_scale", v_scale.get()},
        {"cp_seqused_k_total", cp_seqused_k_total.get()},
        {"out_scale", out_scale.get()},
        {"plan", plan.get()},
        {"out", out.get(), true},
        {"lse", lse.get(), true},
    }}};
  }

  // Sets the flags and numbers among the options.
  template <class Options>
  void set_numbers(Options& options) const {
    using Signature = FlashAttentionVarlenSignature;
    options.softcap = float_number(softcap, subject_of<Signature>(Signature::kSoftcap));
    options.scale = float_number(scale, subject_of<Signature>(Signature::kScale));
  }
};

// In torch_flash_attention_varlen.cpp. The results are new tensors, left on the stack, or where there are
// none of these, what was given is written to.
void compute_flash_attention_varlen(TorchSlot* stack, std::size_t new_results);

}  // namespace kiln::python
