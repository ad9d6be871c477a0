#include "kiln/variant.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "jit/attention/variant_arguments.h"
#include "jit/op/checks.h"
#include "jit/op/digest.h"
#include "jit/op/user_text.h"

namespace kiln {
namespace {

constexpr std::size_t kMaxParams = 16;
constexpr std::size_t kMaxTensors = 8;
// The words of a call's arguments that the built-in options leave to variants.
constexpr std::size_t kMostWords = 280;
const char* const kIndices[] = {"b", "h", "h_kv", "row", "q", "kv"};
const char* const kReserved[] = {"logit", "q",  "row",   "kv",     "b",    "h",
                                 "h_kv",  "at", "len_q", "len_kv", "kiln", "arguments"};
const char* const kKeywords[] = {"alignas",       "alignof",     "and",
                                 "and_eq",        "asm",         "auto",
                                 "bitand",        "bitor",       "bool",
                                 "break",         "case",        "catch",
                                 "char",          "char16_t",    "char32_t",
                                 "char8_t",       "class",       "co_await",
                                 "co_return",     "co_yield",    "compl",
                                 "concept",       "const",       "const_cast",
                                 "consteval",     "constexpr",   "constinit",
                                 "continue",      "decltype",    "default",
                                 "delete",        "do",          "double",
                                 "dynamic_cast",  "else",        "enum",
                                 "explicit",      "export",      "extern",
                                 "false",         "float",       "for",
                                 "friend",        "goto",        "if",
                                 "inline",        "int",         "long",
                                 "mutable",       "namespace",   "new",
                                 "noexcept",      "not",         "not_eq",
                                 "nullptr",       "operator",    "or",
                                 "or_eq",         "private",     "protected",
                                 "public",        "register",    "reinterpret_cast",
                                 "requires",      "return",      "short",
                                 "signed",        "sizeof",      "static",
                                 "static_assert", "static_cast", "struct",
                                 "switch",        "template",    "this",
                                 "thread_local",  "throw",       "true",
                                 "try",           "typedef",     "typeid",
                                 "typename",      "union",       "unsigned",
                                 "using",         "virtual",     "void",
                                 "volatile",      "wchar_t",     "while",
                                 "xor",           "xor_eq"};

bool is_identifier(const std::string& text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// These names belong to C++'s implementation, where macros and built-ins may use them: NULL,
// __device__, _Bool.
bool belongs_to_compiler(const std::string& name) {
  return name == "NULL" || name.find("__") != std::string::npos ||
         (name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z');
}

[[noreturn]] void refuse(const VariantDefinition& d, const std::string& what) {
  throw std::invalid_argument("Variant '" + d.name + "': " + what);
}

void check_name(const VariantDefinition& d, const std::string& name, std::set<std::string>& seen) {
  const auto listed = [&](const auto& list) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  if (!is_identifier(name) || listed(kReserved) || listed(kKeywords) || belongs_to_compiler(name)) {
    refuse(d, "'" + name +
                  "' cannot name a parameter or tensor: it must be a C++ identifier that is not a "
                  "keyword, not NULL, without __ and without a capital letter after a first _, and "
                  "other than logit, q, row, kv, b, h, h_kv, len_q, len_kv, at, kiln, arguments");
  }
  if (!seen.insert(name).second) refuse(d, "the name '" + name + "' is used twice");
}

// A dimension whose index the expression computes: of an extent that is given, or of any.
bool is_free(const std::string& index) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return index == "*" || (!index.empty() && index.size() <= 9 && index[0] != '0' &&
                          std::all_of(index.begin(), index.end(), is_digit));
}

void check_tensor(const VariantDefinition& d, const VariantTensor& tensor) {
  const DType t = tensor.dtype;
  const bool whole = t == DType::i32 || t == DType::i64 || t == DType::u8;
  if (!is_float(t) && !whole && t != DType::boolean) {
    refuse(d, "tensor '" + tensor.name + "' must be f32, f16, bf16, i32, i64, u8 or bool");
  }
  if (tensor.indices.empty() || tensor.indices.size() > kMaxRank) {
    refuse(d, "tensor '" + tensor.name + "' must have 1 to 5 indices");
  }
  for (const std::string& index : tensor.indices) {
    if (is_free(index)) continue;
    if (std::find(std::begin(kIndices), std::end(kIndices), index) == std::end(kIndices)) {
      refuse(d, "tensor '" + tensor.name + "' has the index '" + index +
                    "'; expected b, h, h_kv, row, q, kv, a whole number or *");
    }
  }
}

void check_file(const VariantDefinition& d) {
  if (d.file_text.find('\0') != std::string::npos) refuse(d, "a template file must be text");
  if (reads_foreign_files(d.file_text)) {
    refuse(d,
           "a template file may include only Kiln's own files, as #include \"/kiln/...\", may not "
           "ask for files with __has_include, and may not join tokens (##) if it has #if or #elif");
  }
}

void check_definition(const VariantDefinition& d) {
  for (const std::string* text : {&d.name, &d.logits, &d.mask, &d.file_text, &d.file_name}) {
    if (!is_utf8(*text)) {
      throw std::invalid_argument("Variant: its name, expressions and files must be UTF-8 text");
    }
  }
  if (d.params.size() > kMaxParams) refuse(d, "at most 16 parameters are supported");
  if (d.tensors.size() > kMaxTensors) refuse(d, "at most 8 tensors are supported");
  std::set<std::string> seen;
  for (const VariantParam& param : d.params) {
    check_name(d, param.name, seen);
    if (param.dtype != DType::f32 && param.dtype != DType::i32) {
      refuse(d, "parameter '" + param.name + "' must be f32 or i32");
    }
  }
  for (const VariantTensor& tensor : d.tensors) {
    check_name(d, tensor.name, seen);
    check_tensor(d, tensor);
  }
  const bool expressions = !d.logits.empty() || !d.mask.empty();
  if (expressions && !d.file_text.empty()) refuse(d, "give expressions or a file, not both");
  if (!expressions && d.file_text.empty()) {
    refuse(d, "changes nothing: give logits=, mask= or a template file");
  }
  check_file(d);
  for (const std::string* text : {&d.logits, &d.mask}) {
    if (!is_plain_expression(*text)) {
      refuse(d, "an expression must be one line without preprocessor directives");
    }
  }
}

std::string signature(const VariantDefinition& d) {
  std::string text;
  for (const VariantParam& param : d.params) text += param.name + ":" + name(param.dtype) + ";";
  for (const VariantTensor& tensor : d.tensors) {
    text += tensor.name + ":" + name(tensor.dtype) + "[";
    for (const std::string& index : tensor.indices) text += index + ",";
    text += "];";
  }
  return text;
}

std::int64_t extent_of(const std::string& index, const AttentionProblem& problem) {
  if (index == "b") return problem.batch;
  if (index == "h") return problem.heads;
  if (index == "h_kv") return problem.heads_kv;
  if (index == "row") return problem.len_q;
  return problem.len_kv;  // q counts positions among the keys, kv the keys
}

void check_free(Subject subject, const std::string& index, const TensorView& view, int dimension) {
  const std::int64_t extent = view.shape[dimension];
  const std::string place = " in dimension " + std::to_string(dimension);
  if (index != "*" && extent != std::stoll(index)) {
    throw_value(subject,
                "must have size " + index + place + " as declared, got " + shape_text(view));
  }
  if (extent < 1 || extent > INT32_MAX) {
    throw_value(subject, "must have a size from 1 to 2^31 - 1" + place + ", got " +
                             shape_text(view) + "; its indices are 32-bit numbers");
  }
}

void add_tensor(const VariantDefinition& d, const VariantTensor& declared, const TensorView& view,
                AttentionProblem& problem) {
  const Subject subject{"flash_attention's variant", declared.name.c_str()};
  check_tensor(subject, view, problem.device_ordinal);
  check_dtype(subject, view, declared.dtype, " as declared");
  check_data(subject, view, problem.may_be_null);
  if (view.rank != static_cast<int>(declared.indices.size())) {
    throw_value(subject, "must have " + std::to_string(declared.indices.size()) +
                             " dimensions as declared, got " + shape_text(view));
  }
  for (int i = 0; i < view.rank; ++i) {
    const std::string& index = declared.indices[static_cast<std::size_t>(i)];
    if (is_free(index)) {
      check_free(subject, index, view, i);
      continue;
    }
    const std::int64_t extent = extent_of(index, problem);
    if (index == "q" && problem.len_q > problem.len_kv) {
      refuse(d, "tensor '" + declared.name +
                    "' is indexed by q, which is negative for the first "
                    "rows when len_q > len_kv; index it by row");
    }
    if (view.shape[i] != extent && view.shape[i] != 1) {
      throw_value(subject, "must have size " + std::to_string(extent) + " (or 1) in dimension " +
                               std::to_string(i) + " (" + index + "), got " + shape_text(view));
    }
  }
  CallArguments& arguments = problem.arguments();
  problem.add_tensor(arguments.size(), {subject.name, &view, Use::read});
  for (int i = 0; i < view.rank; ++i) {
    const bool varies = view.shape[i] != 1;
    arguments.add_word(varies ? static_cast<std::uint64_t>(view.strides[i]) : 0);
  }
  if (!is_table(declared)) return;
  for (int i = 0; i < view.rank; ++i) {
    arguments.add_word(static_cast<std::uint32_t>(view.shape[i]));
  }
}

void set_key_bit(Digest128& digest, bool by_key) {
  constexpr std::uint64_t kBit = AttentionTraits::kIndexesByKey;
  digest[1] = (digest[1] & ~kBit) | (by_key ? kBit : 0);
}

}  // namespace

bool is_table(const VariantTensor& tensor) {
  return std::any_of(tensor.indices.begin(), tensor.indices.end(), is_free);
}

std::size_t argument_words(const VariantDefinition& d) {
  std::size_t words = d.params.size();
  for (const VariantTensor& tensor : d.tensors) {
    words += 1 + tensor.indices.size() * (is_table(tensor) ? 2 : 1);
  }
  return words;
}

bool may_index_by_key(const VariantDefinition& d) {
  if (!d.file_text.empty()) return true;
  // An expression may also read a tensor at indices of its own, as a member of `arguments`.
  if (!d.tensors.empty() && (d.logits + d.mask).find("arguments") != std::string::npos) return true;
  return std::any_of(d.tensors.begin(), d.tensors.end(), [](const VariantTensor& tensor) {
    return is_table(tensor) || std::ranges::find(tensor.indices, "kv") != tensor.indices.end();
  });
}

const VariantTensor* tensor_indexed_by(const Variant& variant, std::string_view index) {
  for (const auto& definition : variant.definitions()) {
    for (const VariantTensor& tensor : definition->tensors) {
      if (std::ranges::find(tensor.indices, index) != tensor.indices.end()) return &tensor;
    }
  }
  return nullptr;
}

Variant::Variant(VariantDefinition definition) {
  check_definition(definition);
  digest_ = digest_of({{"signature", signature(definition)},
                       {"logits", definition.logits},
                       {"mask", definition.mask},
                       {"file", definition.file_text}});
  set_key_bit(digest_, may_index_by_key(definition));
  definitions_ = {std::make_shared<const VariantDefinition>(std::move(definition))};
}

Variant::Variant(const std::vector<Variant>& list) {
  std::string digests;
  bool by_key = false;
  std::size_t words = 0;
  for (const Variant& one : list) {
    definitions_.insert(definitions_.end(), one.definitions_.begin(), one.definitions_.end());
    for (const std::uint64_t half : one.digest_) digests += std::to_string(half) + ";";
    by_key = by_key || (one.digest_[1] & AttentionTraits::kIndexesByKey) != 0;
  }
  if (definitions_.empty() || definitions_.size() > kMostVariants) {
    throw std::invalid_argument("Variant: a list must have 1 to 4 variants, got " +
                                std::to_string(definitions_.size()));
  }
  for (const auto& definition : definitions_) words += argument_words(*definition);
  if (words > kMostWords) {
    throw std::invalid_argument("Variant: the parameters and tensors of a list take " +
                                std::to_string(8 * words) + " bytes of a kernel's arguments, and " +
                                std::to_string(8 * kMostWords) +
                                " are free; put several values into one tensor");
  }
  digest_ = list.size() == 1 ? list[0].digest_ : digest_of({{"list", digests}});
  set_key_bit(digest_, by_key);
}

BoundVariant Variant::bind(std::vector<double> values, std::vector<TensorView> tensors) const {
  std::vector<const VariantParam*> params;
  std::size_t tensor_count = 0;
  for (const auto& definition : definitions_) {
    for (const VariantParam& param : definition->params) params.push_back(&param);
    tensor_count += definition->tensors.size();
  }
  if (values.size() != params.size() || tensors.size() != tensor_count) {
    refuse(definition(), "takes " + std::to_string(params.size()) + " parameters and " +
                             std::to_string(tensor_count) + " tensors, got " +
                             std::to_string(values.size()) + " and " +
                             std::to_string(tensors.size()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool whole = values[i] == std::floor(values[i]) && std::abs(values[i]) < 2147483648.0;
    if (params[i]->dtype == DType::i32 && !whole) {
      refuse(definition(), "parameter '" + params[i]->name + "' must be a 32-bit whole number");
    }
  }
  return BoundVariant(*this, std::move(values), std::move(tensors));
}

BoundVariant compose(const std::vector<BoundVariant>& list) {
  std::vector<Variant> variants;
  std::vector<double> values;
  std::vector<TensorView> tensors;
  for (const BoundVariant& one : list) {
    variants.push_back(one.variant());
    values.insert(values.end(), one.values().begin(), one.values().end());
    tensors.insert(tensors.end(), one.tensors().begin(), one.tensors().end());
  }
  return Variant(variants).bind(std::move(values), std::move(tensors));
}

void add_variant_arguments(const BoundVariant& bound, AttentionProblem& problem) {
  const double* value = bound.values().data();
  const TensorView* tensor = bound.tensors().data();
  CallArguments& arguments = problem.arguments();
  for (const auto& definition : bound.variant().definitions()) {
    for (const VariantParam& param : definition->params) {
      if (param.dtype == DType::i32) {
        arguments.add_word(static_cast<std::uint32_t>(static_cast<std::int32_t>(*value++)));
      } else {
        arguments.add_float(static_cast<float>(*value++));
      }
    }
    for (const VariantTensor& declared : definition->tensors) {
      add_tensor(*definition, declared, *tensor++, problem);
    }
  }
}

}  // namespace kiln
