#include "jit/attention/logit_cap.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "jit/attention/mask_names.h"
#include "jit/op/expression.h"
#include "jit/op/expression_tokens.h"
#include "jit/op/source_text.h"
#include "jit/op/user_values.h"

namespace kiln {
namespace {

using O = Operation;
using Test = std::function<bool(const Expression&)>;

constexpr std::string_view kLogit = "logit";

bool is_tanh(std::string_view name) { return name == "tanh" || name == "tanhf"; }

std::string joined(const std::vector<std::string>& tokens, std::size_t begin, std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) text += (text.empty() ? "" : " ") + tokens[i];
  return text;
}

class CapReader {
 public:
  explicit CapReader(const VariantDefinition& definition) : d_(definition) {}

  // The factors' texts are the user's own, with 1 in the place of the logit's tanh.
  LogitCap read() const {
    const auto hides_tanh = [](const auto& declared) { return is_tanh(declared.name); };
    if (std::ranges::any_of(d_.params, hides_tanh) || std::ranges::any_of(d_.tensors, hides_tanh)) {
      return {};
    }
    const ExpressionPointer tree = parsed(d_.logits);
    if (!tree || !is_product(*tree, [&](const Expression& e) { return is_cap(e); })) return {};
    // No factor has calls: there is one such name.
    const std::vector<std::string> tokens = tokens_of(d_.logits);
    const auto at =
        static_cast<std::size_t>(std::ranges::find_if(tokens, is_tanh) - tokens.begin());
    std::size_t end = at + 1;
    for (int open = 0; end == at + 1 || open > 0; ++end) {
      open += tokens[end] == "(" ? 1 : tokens[end] == ")" ? -1 : 0;
    }
    const std::string left = joined(tokens, 0, at), right = joined(tokens, end, tokens.size());
    return {tokens[at], joined(tokens, at + 1, end), left + " kiln::CapFactor(1.0f) " + right};
  }

 private:
  ExpressionPointer parsed(std::string_view text) const {
    return parse_expression(text,
                            [&](std::string_view name) -> NamedType {
                              if (name == kLogit) return {true, ValueType::real};
                              return type_of_mask_name(d_, name);
                            })
        .tree;
  }

  // Whether it is tanh() of a product of the logit.
  bool is_cap(const Expression& e) const {
    if (e.operation != O::unknown || e.words.size() < 3 || !is_tanh(e.words[0])) return false;
    const ExpressionPointer inner = parsed(joined(e.words, 1, e.words.size()));
    return inner && is_product(*inner, [](const Expression& one) {
             return one.operation == O::name && one.text == kLogit;
           });
  }

  // Whether it is `one` times factors, and by divisors, that are the same for all logits.
  bool is_product(const Expression& e, const Test& one) const {
    if (one(e)) return true;
    const auto operand = [&](std::size_t i) -> const Expression& { return *e.operands[i]; };
    switch (e.operation) {
      case O::negate:
        return is_product(operand(0), one);
      case O::convert:  // +x is one, too
        return e.type != ValueType::boolean && e.type != ValueType::integer &&
               is_product(operand(0), one);
      case O::multiply:
        return (is_product(operand(0), one) && is_uniform(operand(1))) ||
               (is_uniform(operand(0)) && is_product(operand(1), one));
      case O::divide:
        return is_product(operand(0), one) && is_uniform(operand(1));
      default:
        return false;
    }
  }

  bool is_uniform(const Expression& e) const {
    if (e.operation == O::unknown) return is_constant_element(e.words);
    if (e.operation == O::name) {
      return std::ranges::any_of(d_.params,
                                 [&](const VariantParam& param) { return param.name == e.text; });
    }
    return std::ranges::all_of(e.operands, [&](const auto& one) { return is_uniform(*one); });
  }

  // An element of a table at numbers, such as `cap(0)`.
  bool is_constant_element(const std::vector<std::string>& words) const {
    if (words.empty()) return false;
    const bool is_of_table = std::ranges::any_of(d_.tensors, [&](const VariantTensor& tensor) {
      return tensor.name == words[0] && is_table(tensor);
    });
    return is_of_table && std::all_of(words.begin() + 1, words.end(), [](const std::string& word) {
             return word == "(" || word == ")" || word == "," || is_number(word);
           });
  }

  const VariantDefinition& d_;
};

std::string factor(const VariantDefinition& d, const std::string& head,
                   const std::string& expression) {
  std::string text = "  __device__ __forceinline__ " + head + " const {\n" + param_names(d.params);
  for (const VariantTensor& tensor : d.tensors) {
    if (is_table(tensor)) text += table_name(tensor);
  }
  return text + user_return("variant logits", expression) + "  }\n";
}

}  // namespace

LogitCap cap_of(const VariantDefinition& definition) {
  if (definition.logits.empty()) return {};
  return CapReader(definition).read();
}

std::string cap_hooks(const VariantDefinition& d, const LogitCap& cap) {
  return factor(d, "kiln::CapFactor cap_factor(kiln::CapFactor logit)", cap.before) +
         factor(d, "kiln::CapFactor cap_size()", cap.after) +
         "  __device__ __forceinline__ float factor_before() const {\n"
         "    return kiln::cap_before(cap_factor(1.0f), cap_size().value);\n  }\n"
         "  __device__ __forceinline__ float factor_after() const {\n"
         "    return kiln::cap_after(cap_size().value);\n  }\n"
         "  __device__ __forceinline__ float logits(float logit, const kiln::Position&) const {\n"
         "    return " +
         cap.function + "(logit);\n  }\n";
}

}  // namespace kiln
