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

[[noreturn]] void refuse(const std::string& what, const json& got) {
  throw std::invalid_argument("spec: field 'variant' is malformed: " + what + ", got " +
                              got.dump());
}

std::string* text_field(VariantDefinition& d, const std::string& field) {
  if (field == "name") return &d.name;
  if (field == "logits") return &d.logits;
  if (field == "mask") return &d.mask;
  if (field == "file_text") return &d.file_text;
  return nullptr;
}

std::vector<std::pair<std::string, std::string>> pairs_of(const json& list,
                                                          const std::string& field) {
  const std::string what = "'" + field + "' must be an array of [name, type] pairs of strings";
  if (!list.is_array()) refuse(what, list);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const json& pair : list) {
    const bool sound =
        pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
    if (!sound) refuse(what, pair);
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

}  // namespace

VariantParam parse_param_declaration(const std::string& name, const std::string& text) {
  const DType dtype = dtype_of_short_name(text);
  if (dtype == DType::f32 || dtype == DType::i32) return {name, dtype};
  throw std::invalid_argument("Variant: the type of the parameter '" + name +
                              "' must be \"f32\" or \"i32\", got \"" + text + "\"");
}

VariantTensor parse_tensor_declaration(const std::string& name, const std::string& text) {
  const std::size_t open = text.find('[');
  if (open == std::string::npos || text.back() != ']') {
    throw std::invalid_argument("Variant: tensor '" + name +
                                "' must be declared as \"f32[h, q, kv]\", got \"" + text + "\"");
  }
  VariantTensor tensor{name, dtype_of_short_name(text.substr(0, open)), {}};
  if (tensor.dtype == DType::none) {
    throw std::invalid_argument("Variant: the type of the tensor '" + name +
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
  // Arrays of pairs, as the order of the names is part of the identity.
  nlohmann::json params = nlohmann::json::array(), tensors = nlohmann::json::array();
  for (const VariantParam& param : d.params)
    params.push_back({param.name, short_name(param.dtype)});
  for (const VariantTensor& tensor : d.tensors) {
    tensors.push_back({tensor.name, declaration(tensor)});
  }
  return {{"name", d.name},     {"params", params}, {"tensors", tensors},
          {"logits", d.logits}, {"mask", d.mask},   {"file_text", d.file_text}};
}

VariantDefinition variant_from_json(const json& object) {
  if (!object.is_object()) refuse("must be an object, or an array of objects for a list", object);
  VariantDefinition d;
  for (const auto& item : object.items()) {
    const std::string& field = item.key();
    if (std::string* text = text_field(d, field)) {
      if (!item.value().is_string()) refuse("'" + field + "' must be a string", item.value());
      *text = item.value().get<std::string>();
    } else if (field == "params") {
      for (const auto& [name, type] : pairs_of(item.value(), field)) {
        d.params.push_back(parse_param_declaration(name, type));
      }
    } else if (field == "tensors") {
      for (const auto& [name, declared] : pairs_of(item.value(), field)) {
        d.tensors.push_back(parse_tensor_declaration(name, declared));
      }
    } else {
      throw std::invalid_argument("spec: field 'variant' has the unknown field '" + field +
                                  "'; it takes name, params, tensors, logits, mask, file_text");
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
