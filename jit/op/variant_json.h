// Variant definitions as JSON, the "variant" field of a spec.
#pragma once

#include <nlohmann/json.hpp>

#include "kiln/variant.h"

namespace kiln {

nlohmann::json variant_to_json(const VariantDefinition& definition);
VariantDefinition variant_from_json(const nlohmann::json& object);

// "f32", "f16", "bf16", "i32", "u8", "bool". Throws std::invalid_argument.
DType parse_short_dtype(const std::string& text);
// "f32[h, q, kv]" -> dtype and indices of a tensor of that name.
VariantTensor parse_tensor_declaration(const std::string& name, const std::string& text);

}  // namespace kiln
