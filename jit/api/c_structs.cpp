#include "jit/api/c_call.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "jit/op/checks.h"
#include "jit/op/variant_json.h"

namespace kiln {
namespace {

std::string text_of(const char* text) { return text == nullptr ? std::string() : text; }

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") + 1 - first);
}

// "cap: f32; reach: i32": calls `add` with each name and type.
template <class Add>
void for_each_declaration(Subject subject, const char* text, Add&& add) {
  std::string rest = trimmed(text_of(text));
  while (!rest.empty()) {
    const std::string one = rest.substr(0, rest.find(';'));
    rest = trimmed(rest.substr(std::min(rest.size(), one.size() + 1)));
    const std::size_t colon = one.find(':');
    if (colon == std::string::npos) {
      throw_value(subject,
                  "must be declarations such as \"cap: f32; reach: i32\", got '" + one + "'");
    }
    add(trimmed(one.substr(0, colon)), trimmed(one.substr(colon + 1)));
  }
}

// The params and tensors of a struct of either kind.
template <class Struct, class Definition>
void read_declarations(const char* owner, const Struct& c, const DeclarationKind& kind,
                       Definition& definition) {
  for_each_declaration({owner, "params"}, c.params,
                       [&](const std::string& name, const std::string& type) {
                         definition.params.push_back(parse_param_declaration(name, type, kind));
                       });
  for_each_declaration({owner, "tensors"}, c.tensors,
                       [&](const std::string& name, const std::string& type) {
                         definition.tensors.push_back(parse_tensor_declaration(name, type, kind));
                       });
}

#define KILN_SAME(c, cpp) static_assert(int(c) == int(cpp))
KILN_SAME(KILN_NONE, DType::none);
KILN_SAME(KILN_F16, DType::f16);
KILN_SAME(KILN_BF16, DType::bf16);
KILN_SAME(KILN_F32, DType::f32);
KILN_SAME(KILN_F64, DType::f64);
KILN_SAME(KILN_I32, DType::i32);
KILN_SAME(KILN_I64, DType::i64);
KILN_SAME(KILN_U8, DType::u8);
KILN_SAME(KILN_BOOL, DType::boolean);
KILN_SAME(KILN_F8_E4M3, DType::f8_e4m3);
KILN_SAME(KILN_F8_E5M2, DType::f8_e5m2);
KILN_SAME(KILN_I8, DType::i8);
KILN_SAME(KILN_F8_E8M0, DType::f8_e8m0);
KILN_SAME(KILN_CPU, DeviceType::cpu);
KILN_SAME(KILN_CUDA, DeviceType::cuda);
static_assert(KILN_MAX_RANK == kMaxRank);
#undef KILN_SAME

// Between the dtypes that callers may give is one that only Kiln's own tensors have.
// Requires: it is not KILN_NONE, which has a message of its own.
DType dtype_of(Subject subject, std::int32_t value) {
  const bool is_own = value == static_cast<std::int32_t>(DType::u64);
  if (value >= 0 && value <= KILN_F8_E8M0 && !is_own) return static_cast<DType>(value);
  throw_value({subject.op, (subject.name + std::string(".dtype")).c_str()},
              "must be one of the values that kiln/c.h lists, 1 to 11 and 13, got " +
                  std::to_string(value));
}

}  // namespace

TensorView view_of(const char* op, const char* name, const kiln_tensor* tensor) {
  TensorView view;
  if (tensor == nullptr) return view;
  view.rank = tensor->rank;
  std::copy_n(tensor->shape, kMaxRank, view.shape);
  std::copy_n(tensor->strides, kMaxRank, view.strides);
  check_view({op, name}, view);
  if (tensor->dtype == KILN_NONE) {
    throw_type({op, name}, "has no dtype; set it, or pass NULL for a tensor that is not given");
  }
  view.data = tensor->data;
  view.dtype = dtype_of({op, name}, tensor->dtype);
  view.device_type = enum_of({op, name}, tensor->device_type, DeviceType::cuda, ".device_type");
  view.device_ordinal = tensor->device_ordinal;
  return view;
}

VariantDefinition definition_of(const kiln_variant_definition* given) {
  if (given == nullptr) {
    throw std::invalid_argument("kiln_variant_create: definition must not be NULL");
  }
  const auto c = copy_of(given, "kiln_variant_definition");
  VariantDefinition definition;
  definition.name = text_of(c.name);
  definition.logits = text_of(c.logits);
  definition.mask = text_of(c.mask);
  definition.file_text = text_of(c.file_text);
  definition.file_name = text_of(c.file_name);
  read_declarations("kiln_variant_definition", c, kVariantDeclaration, definition);
  return definition;
}

EpilogueDefinition definition_of(const kiln_epilogue_definition* given) {
  check_not_null("kiln_epilogue_create", "definition", given);
  const auto c = copy_of(given, "kiln_epilogue_definition");
  EpilogueDefinition definition;
  definition.name = text_of(c.name);
  definition.value = text_of(c.value);
  read_declarations("kiln_epilogue_definition", c, kEpilogueDeclaration, definition);
  return definition;
}

std::vector<TensorView> bound_views(const char* function, const kiln_tensor* tensors,
                                    std::size_t count) {
  if (count != 0) check_not_null(function, "tensors", tensors);
  std::vector<TensorView> views;
  for (const kiln_tensor& tensor : std::span(tensors, count)) {
    views.push_back(view_of(function, "tensor", &tensor));
  }
  return views;
}

}  // namespace kiln
