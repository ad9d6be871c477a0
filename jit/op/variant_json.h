// Variant definitions as JSON, the "variant" field of a spec.
#pragma once

#include <nlohmann/json.hpp>

#include "kiln/variant.h"

namespace kiln {

nlohmann::json variant_to_json(const VariantDefinition& definition);
VariantDefinition variant_from_json(const nlohmann::json& object);

// An object, or an array of them for a list.
nlohmann::json variants_to_json(const Variant& variant);
Variant variants_from_json(const nlohmann::json& given);

// Return how a parameter or tensor of that name is declared: "f32" or "i32", and "f32[h, q, kv]".
// Both throw std::invalid_argument.
VariantParam parse_param_declaration(const std::string& name, const std::string& text);
VariantTensor parse_tensor_declaration(const std::string& name, const std::string& text);

}  // namespace kiln
