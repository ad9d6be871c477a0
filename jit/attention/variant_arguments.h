// The run-time values of a bound variant, checked against the call and appended as words in the
// order of the struct that variant_source() prints: parameters, then tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jit/attention/problem.h"
#include "kiln/variant.h"

namespace kiln {

// The words of the argument block that a variant's parameters and tensors fill, without those of
// element_bounds.h, for which the mask would have to be parsed.
std::size_t argument_words(const VariantDefinition& definition);

// The first tensor of a list's variants whose name stands for an element at this index, or null.
const VariantTensor* tensor_indexed_by(const Variant& variant, std::string_view index);

// Whether hooks may read tensors at keys. Those of other variants need fewer registers, and may be
// asked about keys behind the last.
bool may_index_by_key(const VariantDefinition& definition);

// What the choice of a kernel has to know of a definition's code, as bits of AttentionTraits:
// kIndexesByKey, see above; kMasks, it may hide keys; kBoundsRows, it does nothing but bound the
// keys of each row, as the built-in masks do, and tilt logits; kTilts, it does that (LogitTilt),
// and kTiltsPast, only those of keys up to the query's own; kBoundsElements, a launch may compute
// bounds of elements that it reads (element_bounds.h); kHasDistanceBias, a file says so;
// kKeepsLogits, it changes no logits; kReadsTiles, a file says by kFillsTiles that its tile() does.
std::uint64_t code_of(const VariantDefinition& definition);

// Says in the problem how many keys the masks leave of a row, and whether as many of all rows, as
// far as comparisons of q - kv with numbers tell.
void add_reach(const BoundVariant& bound, AttentionProblem& problem);

// Requires: a problem whose sizes are known.
void add_variant_arguments(const BoundVariant& bound, AttentionProblem& problem);

}  // namespace kiln
