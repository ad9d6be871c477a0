#include "jit/variant_json.h"

#include <stdexcept>
#include <utility>

namespace kiln {
namespace {

constexpr std::pair<const char*, DType> kShortNames[] = {
    {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16},
    {"i32", DType::i32}, {"u8", DType::u8},   {"bool", DType::boolean}};

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

}  // namespace

DType parse_short_dtype(const std::string& text) {
  for (const auto& [name, dtype] : kShortNames) {
    if (text == name) return dtype;
  }
  throw std::invalid_argument("Variant: the type must be f32, f16, bf16, i32, u8 or bool, got '" +
                              text + "'");
}

VariantTensor parse_tensor_declaration(const std::string& name, const std::string& text) {
  const std::size_t open = text.find('[');
  if (open == std::string::npos || text.back() != ']') {
    throw std::invalid_argument("Variant: tensor '" + name +
                                "' must be declared as \"f32[h, q, kv]\", got \"" + text + "\"");
  }
  VariantTensor tensor{name, parse_short_dtype(text.substr(0, open)), {}};
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

VariantDefinition variant_from_json(const nlohmann::json& object) {
  try {
    VariantDefinition d;
    d.name = object.value("name", "");
    d.logits = object.value("logits", "");
    d.mask = object.value("mask", "");
    d.file_text = object.value("file_text", "");
    for (const auto& pair : object.value("params", nlohmann::json::array())) {
      d.params.push_back({pair.at(0), parse_short_dtype(pair.at(1))});
    }
    for (const auto& pair : object.value("tensors", nlohmann::json::array())) {
      d.tensors.push_back(parse_tensor_declaration(pair.at(0), pair.at(1)));
    }
    return d;
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(std::string("spec: field 'variant' is malformed: ") + error.what());
  }
}

}  // namespace kiln
