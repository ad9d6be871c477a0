#include "jit/op/user_values.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace kiln {
namespace {

constexpr std::size_t kMaxParams = 16;
constexpr std::size_t kMaxTensors = 8;
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

std::string joined(std::span<const char* const> names) {
  std::string text;
  for (const char* name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

bool is_listed(std::span<const char* const> list, const std::string& name) {
  return std::ranges::find(list, name) != list.end();
}

void check_name(const UserDeclarations& d, const std::string& name, std::set<std::string>& seen) {
  if (!is_identifier(name) || is_listed(d.reserved, name) || is_listed(kKeywords, name) ||
      belongs_to_compiler(name)) {
    refuse_declaration(
        d, "'" + name +
               "' cannot name a parameter or tensor: it must be a C++ identifier that is not a "
               "keyword, not NULL, without __ and without a capital letter after a first _, and "
               "other than " +
               joined(d.reserved));
  }
  if (!seen.insert(name).second) refuse_declaration(d, "the name '" + name + "' is used twice");
}

void check_tensor_type(const UserDeclarations& d, const VariantTensor& tensor) {
  const DType t = tensor.dtype;
  const bool whole = t == DType::i32 || t == DType::i64 || t == DType::u8;
  if (!is_float(t) && !whole && t != DType::boolean) {
    refuse_declaration(d,
                       "tensor '" + tensor.name + "' must be f32, f16, bf16, i32, i64, u8 or bool");
  }
  if (tensor.indices.empty() || tensor.indices.size() > kMaxRank) {
    refuse_declaration(d, "tensor '" + tensor.name + "' must have 1 to 5 indices");
  }
  for (const std::string& index : tensor.indices) {
    if (is_free_index(index) || is_listed(d.indices, index)) continue;
    refuse_declaration(d, "tensor '" + tensor.name + "' has the index '" + index + "'; expected " +
                              d.indices_text + ", a whole number or *");
  }
}

}  // namespace

void refuse_declaration(const UserDeclarations& d, const std::string& what) {
  throw std::invalid_argument(std::string(d.kind) + " '" + d.name + "': " + what);
}

void check_declarations(const UserDeclarations& d) {
  if (d.params.size() > kMaxParams) refuse_declaration(d, "at most 16 parameters are supported");
  if (d.tensors.size() > kMaxTensors) refuse_declaration(d, "at most 8 tensors are supported");
  std::set<std::string> seen;
  for (const VariantParam& param : d.params) {
    check_name(d, param.name, seen);
    if (param.dtype != DType::f32 && param.dtype != DType::i32) {
      refuse_declaration(d, "parameter '" + param.name + "' must be f32 or i32");
    }
  }
  for (const VariantTensor& tensor : d.tensors) {
    check_name(d, tensor.name, seen);
    check_tensor_type(d, tensor);
  }
}

std::string signature_of(const UserDeclarations& d) {
  std::string text;
  for (const VariantParam& param : d.params) text += param.name + ":" + name(param.dtype) + ";";
  for (const VariantTensor& tensor : d.tensors) {
    text += tensor.name + ":" + name(tensor.dtype) + "[";
    for (const std::string& index : tensor.indices) text += index + ",";
    text += "];";
  }
  return text;
}

void check_param_value(const UserDeclarations& d, const VariantParam& param, double value) {
  const bool whole = value == std::floor(value) && value >= -2147483648.0 && value < 2147483648.0;
  if (param.dtype == DType::i32 && !whole) {
    refuse_declaration(d, "parameter '" + param.name + "' must be a 32-bit whole number");
  }
}

bool is_free_index(const std::string& index) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return index == "*" || (!index.empty() && index.size() <= 9 && index[0] != '0' &&
                          std::all_of(index.begin(), index.end(), is_digit));
}

bool is_table(const VariantTensor& tensor) {
  return std::any_of(tensor.indices.begin(), tensor.indices.end(), is_free_index);
}

void check_free_dimension(Subject subject, const std::string& index, const TensorView& view,
                          int dimension) {
  const std::int64_t extent = view.shape[dimension];
  const auto place = [&] { return " in dimension " + std::to_string(dimension); };
  if (index != "*" && extent != std::stoll(index)) {
    throw_value(subject,
                "must have size " + index + place() + " as declared, got " + shape_text(view));
  }
  if (extent < 1 || extent > INT32_MAX) {
    throw_value(subject, "must have a size from 1 to 2^31 - 1" + place() + ", got " +
                             shape_text(view) + "; its indices are 32-bit numbers");
  }
}

void check_bound_tensor(Subject subject, const VariantTensor& declared, const TensorView& view,
                        const Problem& problem) {
  check_tensor(subject, view, problem.device_ordinal);
  check_dtype(subject, view, declared.dtype, " as declared");
  check_data(subject, view, problem.may_be_null);
  check_rank(subject, view, static_cast<int>(declared.indices.size()), "as declared");
  if (view.rank == 0 || view.shape[view.rank - 1] == 1) return;
  // See element_at() in templates/base/table.cuh.
  const std::int64_t bytes = view.strides[view.rank - 1] * size_of(view.dtype);
  if (bytes < -INT32_MAX || bytes > INT32_MAX) {
    throw_value(subject, "must have a stride below 2^31 bytes in its last dimension, got " +
                             std::to_string(bytes) + "; call .contiguous() first");
  }
}

void add_param(const VariantParam& param, double value, CallArguments& arguments) {
  if (param.dtype == DType::i32) {
    arguments.add_word(static_cast<std::uint32_t>(static_cast<std::int32_t>(value)));
  } else {
    arguments.add_float(static_cast<float>(value));
  }
}

void add_bound_tensor(const char* name, const TensorView& view, bool has_extents, Problem& problem,
                      Use use) {
  CallArguments& arguments = problem.arguments();
  problem.add_tensor(arguments.size(), {name, &view, use});
  for (int i = 0; i < view.rank; ++i) {
    const bool varies = view.shape[i] != 1;
    arguments.add_word(varies ? static_cast<std::uint64_t>(view.strides[i]) : 0);
  }
  if (!has_extents) return;
  for (int i = 0; i < view.rank; ++i) {
    arguments.add_word(static_cast<std::uint32_t>(view.shape[i]));
  }
}

}  // namespace kiln
