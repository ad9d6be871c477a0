// What the C++ kernels of the operators flash_attention_varlen and flash_attention_with_kvcache
// have in common.
#pragma once

#include <cstddef>
#include <utility>

#include "attention_options.h"
#include "options.h"
#include "torch_arguments.h"
#include "torch_kernels.h"
#include "torch_tensors.h"

namespace kiln::python {

// Sets the options of both, once the tensors are read.
template <class Signature, class Arguments, class Tensors, class Options>
void set_options(const Arguments& given, const Tensors& tensors, TorchIntake& intake,
                 Options& options) {
  AttentionOptions& attention = options.attention;
  given.set_numbers(attention);
  attention.causal = given.causal;
  read_window(given.window, subject_of<Signature>(Signature::kWindow), attention);
  options.num_splits = given.num_splits;
  options.block_table = tensors.block_table().view;
  options.kv_indptr = tensors.kv_indptr().view;
  options.kv_indices = tensors.kv_indices().view;
  options.tree_mask = tensors.tree_mask().view;
  options.context = {given.cp_world, given.cp_rank, given.cp_interleave,
                     tensors.cp_seqused_k_total().view};
  attention.q_scale = tensors.q_scale().view;
  attention.k_scale = tensors.k_scale().view;
  attention.v_scale = tensors.v_scale().view;
  options.out_scale = tensors.out_scale().view;
  options.plan = tensors.plan().view;
  attention.sinks = tensors.sinks().view;
  attention.alibi_slopes = tensors.alibi_slopes().view;
  attention.workspace = intake.workspace();
}

// Runs a call whose results are new tensors, left on the stack, or were given.
template <class Tensors, class Out, class Lse, class Run>
void compute_results(Tensors& tensors, TorchIntake& intake, TorchSlot* stack,
                     std::size_t new_results, Out&& out_shape, Lse&& lse_shape, Run&& run) {
  TorchTensor new_out, new_lse;
  if (new_results >= 1) {
    tensors.out().view = out_shape();
    new_out = intake.allocate(tensors.out().view);
  }
  if (new_results >= 2) {
    tensors.lse().view = lse_shape();
    new_lse = intake.allocate(tensors.lse().view);
  }
  run();
  if (new_out) stack[0] = slot_of(std::move(new_out));
  if (new_lse) stack[1] = slot_of(std::move(new_lse));
}

}  // namespace kiln::python
