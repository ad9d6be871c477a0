// Definitions of variants and of epilogues as JSON, the fields of these names of a spec.
#pragma once

#include <nlohmann/json.hpp>

#include "kiln/epilogue.h"
#include "kiln/variant.h"

namespace kiln {

nlohmann::json variant_to_json(const VariantDefinition& definition);
VariantDefinition variant_from_json(const nlohmann::json& object);

// An object, or an array of them for a list.
nlohmann::json variants_to_json(const Variant& variant);
Variant variants_from_json(const nlohmann::json& given);

nlohmann::json epilogue_to_json(const EpilogueDefinition& definition);
EpilogueDefinition epilogue_from_json(const nlohmann::json& object);

// Whose declarations are read, for messages.
struct DeclarationKind {
  const char* kind;
  const char* example;  // of a tensor
};
inline constexpr DeclarationKind kVariantDeclaration = {"Variant", "f32[h, q, kv]"};
inline constexpr DeclarationKind kEpilogueDeclaration = {"Epilogue", "f32[n]"};

// Return how a parameter or tensor of that name is declared: "f32" or "i32", and "f32[h, q, kv]".
// Both throw std::invalid_argument.
VariantParam parse_param_declaration(const std::string& name, const std::string& text,
                                     const DeclarationKind& kind = kVariantDeclaration);
VariantTensor parse_tensor_declaration(const std::string& name, const std::string& text,
                                       const DeclarationKind& kind = kVariantDeclaration);

}  // namespace kiln
