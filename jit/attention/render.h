// Attention's specializations as source.
#pragma once

#include <string>

#include "jit/attention/traits.h"
#include "jit/op/family.h"

namespace kiln {

// Of templates/attention/flash_attention.cuh.
std::string render_attention(const Specialization& spec, const UserTexts& texts);
// This one renders templates/attention/varlen/flash_attention.cuh, with rows of the same table.
std::string render_attention_varlen(const Specialization& spec, const UserTexts& texts);
// This one renders a row of templates/attention/sm90/flash_attention.cuh.
std::string render_attention_sm90(const Specialization& spec, const UserTexts& texts);

// What every attention kernel's source says of its variant: the user's, then the type `Variant`.
// `closely`: see reads_closely() in render_sm90.cpp.
std::string variant_source(const AttentionTraits& traits, const UserTexts& texts,
                           bool closely = false);

// Members of a kernel's Config for a quantised cache or output; "" for others.
std::string quantized_source(const AttentionTraits& traits, int arch);

}  // namespace kiln
