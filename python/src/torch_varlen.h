// What the C++ kernels of the operators flash_attention_varlen and flash_attention_with_kvcache
// have in common.
#pragma once

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

}  // namespace kiln::python
