// The structs of kiln/c.h as those of the C++ API. All throw std::invalid_argument for what no C++
// value could be: a rank or a number that no enumeration has, a struct_size that was not set.
#pragma once

#include <optional>
#include <string>

#include "kiln/c.h"
#include "kiln/kiln.h"

namespace kiln {

// A null tensor is one that is not given.
TensorView view_of(const char* op, const char* name, const kiln_tensor* tensor);

// Null options are the defaults. Views, texts and the variant stay the caller's.
AttentionOptions options_of(const kiln_attention_options* options);
SdpaOptions options_of(const kiln_sdpa_options* options);
GemmOptions options_of(const kiln_gemm_options* options);

VariantDefinition definition_of(const kiln_variant_definition* definition);

}  // namespace kiln

struct kiln_bound_variant {
  kiln::BoundVariant variant;
};
