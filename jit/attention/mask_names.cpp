#include "jit/attention/mask_names.h"

#include <algorithm>
#include <array>

#include "jit/attention/element_bounds.h"

namespace kiln {
namespace {

constexpr std::array<std::string_view, 8> kInts{"b", "h",  "h_kv",  "row",
                                                "q", "kv", "len_q", "len_kv"};
constexpr std::string_view kMember = "at.";

template <class List>
auto find(const List& list, std::string_view name) {
  const auto at = std::ranges::find_if(list, [&](const auto& one) { return one.name == name; });
  return at == list.end() ? nullptr : &*at;
}

ValueType type_of(DType dtype) {
  if (dtype == DType::boolean) return ValueType::boolean;
  const bool is_integer = dtype == DType::i32 || dtype == DType::i64 || dtype == DType::u8;
  return is_integer ? ValueType::integer : ValueType::real;
}

// All pairs of a tile have the same element of such a tensor.
bool is_of_sequence(const VariantTensor& tensor) {
  return std::ranges::all_of(tensor.indices, [](const std::string& i) { return i == "b"; });
}

}  // namespace

std::string plain_name(std::string_view name) {
  return std::string(name.starts_with(kMember) ? name.substr(kMember.size()) : name);
}

NamedType type_of_mask_name(const VariantDefinition& d, std::string_view name) {
  if (name == "at.distance") return {true, ValueType::real};
  if (std::ranges::find(kInts, plain_name(name)) != kInts.end()) return {true, ValueType::integer};
  if (const VariantParam* const param = find(d.params, name)) return {true, type_of(param->dtype)};
  const VariantTensor* const tensor = find(d.tensors, name);
  if (tensor == nullptr) return {};
  return {true, is_of_sequence(*tensor) ? type_of(tensor->dtype) : ValueType::unknown};
}

NamedType type_of_mask_element(const VariantDefinition& d, std::string_view name) {
  const NamedType type = type_of_mask_name(d, name);
  if (type.exists && type.type != ValueType::unknown) return type;
  const auto element = bounded_element(d, name);
  return element ? NamedType{true, type_of(d.tensors[element->tensor.tensor].dtype)} : type;
}

std::string interval_of_name(const VariantDefinition& d, std::string_view name,
                             const std::string& box) {
  if (name == "at.distance") return "kiln::distance(" + box + ".distance)";
  if (name == "q" || name == "kv") return box + "." + std::string(name);
  if (name == "row") return box + ".row()";
  if (name == "b" || name == "len_q" || name == "len_kv") {
    return "kiln::point(" + box + "." + std::string(name) + ")";
  }
  // A tile may hold rows of several heads.
  if (name == "h" || name == "h_kv") return "kiln::Interval{0, kiln::kLargestInt}";
  if (const VariantParam* const param = find(d.params, name)) {
    const char* const function = param->dtype == DType::i32 ? "kiln::point" : "kiln::real";
    return function + ("(arguments." + param->name + ".value)");
  }
  if (const auto element = bounded_element(d, name)) return interval_of_element(d, *element, box);
  const VariantTensor* const tensor = find(d.tensors, name);
  if (tensor == nullptr) return "";
  std::string indices;
  for (std::size_t i = 0; i < tensor->indices.size(); ++i) indices += (i ? ", " : "") + box + ".b";
  const std::string element = "(arguments." + tensor->name + ".at(" + indices + "))";
  if (type_of(tensor->dtype) != ValueType::real) return "kiln::point" + element;
  return "kiln::real(kiln::to_float" + element + ")";
}

std::string why_unknown(const VariantDefinition& d, std::string_view name) {
  const VariantTensor* const tensor = find(d.tensors, name);
  if (tensor == nullptr || is_of_sequence(*tensor) || bounded_element(d, name)) return "";
  return "tensor element '" + tensor->name + "'";
}

}  // namespace kiln
