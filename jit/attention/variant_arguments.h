// The run-time values of a bound variant, checked against the call and appended as words in the
// order of the struct that render_attention prints: parameters, then tensors.
#pragma once

#include "jit/op/arguments.h"
#include "kiln/variant.h"

namespace kiln {

struct VariantExtents {
  int batch, heads, heads_kv, len_q, len_kv, device_ordinal;
  bool may_be_null;  // as in the problem
};
void add_variant_arguments(const BoundVariant& bound, const VariantExtents& extents,
                           CallArguments& arguments);

}  // namespace kiln
