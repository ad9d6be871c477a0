#include "jit/op/variant_json.h"

#include <stdexcept>
#include <utility>

namespace kiln {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, DType> kShortNames[] = {
    {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16},   {"i32", DType::i32},
    {"i64", DType::i64}, {"u8", DType::u8},   {"bool", DType::boolean}};

std::string short_name(DType dtype) {
  for (const auto& [text, value] : kShortNames) {
    if (value == dtype) return text;
  }
  return "?";
}

std::string declaration(const VariantTensor& tensor) {
  std::string text = short_name(tensor.dtype) + "[";
  for (std::size_t i = 0; i < tensor.indices.size(); ++i) {
    text += (i ? ", " : "") + tensor.indices[i];
  }
  return text + "]";
}

// `owner` is the field of the spec: variant or epilogue.
[[noreturn]] void refuse(const char* owner, const std::string& what, const json& got) {
  throw std::invalid_argument(std::string("spec: field '") + owner + "' is malformed: " + what +
                              ", got " + got.dump());
}

std::string* text_field(VariantDefinition& d, const std::string& field) {
  if (field == "name") return &d.name;
  if (field == "logits") return &d.logits;
  if (field == "mask") return &d.mask;
  if (field == "file_text") return &d.file_text;
  return nullptr;
}

std::vector<std::pair<std::string, std::string>> pairs_of(const char* owner, const json& list,
                                                          const std::string& field) {
  const std::string what = "'" + field + "' must be an array of [name, type] pairs of strings";
  if (!list.is_array()) refuse(owner, what, list);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const json& pair : list) {
    const bool sound =
        pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
    if (!sound) refuse(owner, what, pair);
    pairs.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  return pairs;
}

// none: there is no such name.
DType dtype_of_short_name(const std::string& text) {
  for (const auto& [name, dtype] : kShortNames) {
    if (text == name) return dtype;
  }
  return DType::none;
}

// Fills what variants and epilogues both declare: whether the field is one of these.
bool read_declarations(const char* owner, const DeclarationKind& kind, const std::string& field,
                       const json& value, std::vector<VariantParam>& params,
                       std::vector<VariantTensor>& tensors) {
  if (field == "params") {
    for (const auto& [name, type] : pairs_of(owner, value, field)) {
      params.push_back(parse_param_declaration(name, type, kind));
    }
  } else if (field == "tensors") {
    for (const auto& [name, declared] : pairs_of(owner, value, field)) {
      tensors.push_back(parse_tensor_declaration(name, declared, kind));
    }
  } else {
    return false;
  }
  return true;
}

// Arrays of pairs, as the order of the names is part of the identity.
json params_to_json(const std::vector<VariantParam>& params) {
  json list = json::array();
  for (const VariantParam& param : params) list.push_back({param.name, short_name(param.dtype)});
  return list;
}
json tensors_to_json(const std::vector<VariantTensor>& tensors) {
  json list = json::array();
  for (const VariantTensor& tensor : tensors) {
    list.push_back({tensor.name, declaration(tensor)});
  }
  return list;
}

}  // namespace

VariantParam parse_param_declaration(const std::string& name, const std::string& text,
                                     const DeclarationKind& kind) {
  const DType dtype = dtype_of_short_name(text);
  if (dtype == DType::f32 || dtype == DType::i32) return {name, dtype};
  throw std::invalid_argument(std::string(kind.kind) + ": the type of the parameter '" + name +
                              "' must be \"f32\" or \"i32\", got \"" + text + "\"");
}

VariantTensor parse_tensor_declaration(const std::string& name, const std::string& text,
                                       const DeclarationKind& kind) {
  const std::size_t open = text.find('[');
  if (open == std::string::npos || text.back() != ']') {
    throw std::invalid_argument(std::string(kind.kind) + ": tensor '" + name +
                                "' must be declared as \"" + kind.example + "\", got \"" + text +
                                "\"");
  }
  VariantTensor tensor{name, dtype_of_short_name(text.substr(0, open)), {}};
  if (tensor.dtype == DType::none) {
    throw std::invalid_argument(std::string(kind.kind) + ": the type of the tensor '" + name +
                                "' must be f32, f16, bf16, i32, i64, u8 or bool, got \"" + text +
                                "\"");
  }
  std::string index;
  for (char c : text.substr(open + 1)) {
    if (c == ',' || c == ']') {
      tensor.indices.push_back(std::exchange(index, {}));
    } else if (c != ' ') {
      index += c;
    }
  }
  return tensor;
}

nlohmann::json variant_to_json(const VariantDefinition& d) {
  return {{"name", d.name},
          {"params", params_to_json(d.params)},
          {"tensors", tensors_to_json(d.tensors)},
          {"logits", d.logits},
          {"mask", d.mask},
          {"file_text", d.file_text}};
}

VariantDefinition variant_from_json(const json& object) {
  const char* const owner = "variant";
  if (!object.is_object()) {
    refuse(owner, "must be an object, or an array of objects for a list", object);
  }
  VariantDefinition d;
  for (const auto& item : object.items()) {
    const std::string& field = item.key();
    if (std::string* text = text_field(d, field)) {
      if (!item.value().is_string())
        refuse(owner, "'" + field + "' must be a string", item.value());
      *text = item.value().get<std::string>();
    } else if (!read_declarations(owner, kVariantDeclaration, field, item.value(), d.params,
                                  d.tensors)) {
      throw std::invalid_argument("spec: field 'variant' has the unknown field '" + field +
                                  "'; it takes name, params, tensors, logits, mask, file_text");
    }
  }
  return d;
}

nlohmann::json epilogue_to_json(const EpilogueDefinition& d) {
  return {{"name", d.name},
          {"params", params_to_json(d.params)},
          {"tensors", tensors_to_json(d.tensors)},
          {"value", d.value}};
}

EpilogueDefinition epilogue_from_json(const json& object) {
  const char* const owner = "epilogue";
  if (!object.is_object()) refuse(owner, "must be a string or an object", object);
  EpilogueDefinition d;
  for (const auto& item : object.items()) {
    const std::string& field = item.key();
    if (field == "name" || field == "value") {
      if (!item.value().is_string())
        refuse(owner, "'" + field + "' must be a string", item.value());
      (field == "name" ? d.name : d.value) = item.value().get<std::string>();
    } else if (!read_declarations(owner, kEpilogueDeclaration, field, item.value(), d.params,
                                  d.tensors)) {
      throw std::invalid_argument("spec: field 'epilogue' has the unknown field '" + field +
                                  "'; it takes name, params, tensors, value");
    }
  }
  return d;
}

nlohmann::json variants_to_json(const Variant& variant) {
  const Variant::Definitions& definitions = variant.definitions();
  if (definitions.size() == 1) return variant_to_json(*definitions[0]);
  nlohmann::json list = nlohmann::json::array();
  for (const auto& definition : definitions) list.push_back(variant_to_json(*definition));
  return list;
}

Variant variants_from_json(const json& given) {
  if (!given.is_array()) return Variant(variant_from_json(given));
  std::vector<Variant> list;
  for (const json& one : given) list.emplace_back(variant_from_json(one));
  return Variant(list);
}

}  // namespace kiln
