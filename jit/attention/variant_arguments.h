// The run-time values of a bound variant, checked against the call and appended as words in the
// order of the struct that render_attention prints: parameters, then tensors.
#pragma once

#include "jit/attention/problem.h"
#include "kiln/variant.h"

namespace kiln {

// Whether hooks may read tensors at keys. Those of other variants need fewer registers, and may be
// asked about keys behind the last.
bool may_index_by_key(const VariantDefinition& definition);

// Requires: a problem whose sizes are known.
void add_variant_arguments(const BoundVariant& bound, AttentionProblem& problem);

}  // namespace kiln
