// Options of appending, for the C entries and the operators' kernels.
#pragma once

#include "kiln/append_kv.h"

namespace kiln::python {

// The tensors among the options, from the call's, which have been read.
template <class Tensors>
void set_append_options(const Tensors& tensors, AppendKvOptions& options) {
  options.k_scale = tensors.k_scale().view;
  options.v_scale = tensors.v_scale().view;
  options.query = tensors.query().view;
  options.query_out = tensors.query_out().view;
  options.q_weight = tensors.q_weight().view;
  options.k_weight = tensors.k_weight().view;
  options.positions = tensors.positions().view;
  options.cos = tensors.cos().view;
  options.sin = tensors.sin().view;
}

}  // namespace kiln::python
