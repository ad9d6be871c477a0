#include "jit/attention/logit_tilt.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "jit/attention/mask_names.h"
#include "jit/attention/mask_terms.h"
#include "jit/op/expression.h"
#include "jit/op/user_values.h"

namespace kiln {
namespace {

using O = Operation;

// An expression of the device, "" for 0; or nothing where it is not known.
using Growth = std::optional<std::string>;

class TiltReader {
 public:
  explicit TiltReader(const VariantDefinition& definition) : d_(definition) {}

  LogitTilt read() {
    const ParsedExpression parsed =
        parse_expression(d_.logits, [&](std::string_view name) -> NamedType {
          if (name == kLogit) return {true, ValueType::real};
          return type_of_mask_name(d_, name);
        });
    if (!parsed.tree) return {};
    logits_ = 0;
    const Growth growth = growth_of(*parsed.tree);
    if (!growth || growth->empty() || logits_ != 1) return {};
    return {*growth, of_past_};
  }

 private:
  static constexpr std::string_view kLogit = "logit";

  // What has one value: for all pairs of a head, or for all keys of a query.
  enum class Of { head, row };

  bool is_of(Of what, std::string_view name) const {
    if (name == kLogit || name == "kv") return false;
    if (name == "q" || name == "row") return what == Of::row;
    if (name.starts_with("at.") && name != "at.distance") return is_of(what, plain_name(name));
    // A member of `arguments` is read at any indices.
    if (name == "at" || name == "at.distance" || name == "arguments") return false;
    for (const VariantTensor& tensor : d_.tensors) {
      if (tensor.name != name || is_table(tensor)) continue;
      return std::ranges::all_of(tensor.indices,
                                 [&](const std::string& index) { return is_of(what, index); });
    }
    return true;
  }
  bool is_of(Of what, const Expression& e) const {
    if (e.operation == O::name) return is_of(what, std::string_view(e.text));
    if (e.operation == O::unknown) {
      return std::ranges::all_of(e.words, [&](const std::string& w) { return is_of(what, w); });
    }
    return std::ranges::all_of(e.operands, [&](const auto& one) { return is_of(what, *one); });
  }

  // What `e` grows by from key to key. Counts the logits that it adds up.
  Growth growth_of(const Expression& e) {
    if (is_of(Of::row, e)) return "";
    const auto operand = [&](int i) -> const Expression& {
      return *e.operands[static_cast<std::size_t>(i)];
    };
    switch (e.operation) {
      case O::name:
        if (e.text == kLogit) {
          ++logits_;
          return "";
        }
        if (e.text == "kv" || e.text == "at.kv") return "1.0f";
        if (e.text == "at.distance") return "-1.0f";
        return {};
      case O::add:
        return sum(growth_of(operand(0)), growth_of(operand(1)), "+");
      case O::subtract: {
        const Growth first = growth_of(operand(0));
        const int before = logits_;
        const Growth second = growth_of(operand(1));
        if (logits_ != before) return {};  // the logit is subtracted
        return sum(first, second, "-");
      }
      case O::negate:
        return without_logit(operand(0), "-");
      case O::convert:
        if (e.type != ValueType::real && operand(0).type != ValueType::integer) return {};
        return growth_of(operand(0));
      case O::multiply:
        if (const Growth growth = product(operand(0), operand(1), "*")) return growth;
        return product(operand(1), operand(0), "*");
      case O::divide:
        return e.type == ValueType::integer ? Growth{} : product(operand(0), operand(1), "/");
      case O::magnitude:
        return of_magnitude(e.operands[0]);
      default:
        return {};
    }
  }
  static Growth sum(const Growth& a, const Growth& b, const char* sign) {
    if (!a || !b) return {};
    if (b->empty()) return a;
    return "(" + (a->empty() ? "0.0f" : *a) + " " + sign + " " + *b + ")";
  }
  // Of sign * e, in which there may be no logit.
  Growth without_logit(const Expression& e, const std::string& before) {
    const int logits = logits_;
    const Growth growth = growth_of(e);
    if (!growth || logits_ != logits) return {};
    return growth->empty() ? growth : Growth("(" + before + *growth + ")");
  }
  // Of `one` times, or by, `factor`, which is the same for all pairs of a head.
  Growth product(const Expression& one, const Expression& factor, const std::string& sign) {
    if (!is_of(Of::head, factor)) return {};
    const int logits = logits_;
    const Growth growth = growth_of(one);
    if (logits_ != logits) {
      logits_ = logits;
      return {};
    }
    const Growth text = text_of(factor);
    if (!growth || !text) return {};
    return growth->empty() ? growth : Growth("(" + *growth + " " + sign + " " + *text + ")");
  }
  // Of abs(q - kv), which is q - kv where keys are not behind the query.
  Growth of_magnitude(const ExpressionPointer& e) {
    of_past_ = true;
    if (e->operation == O::name && e->text == "at.distance") return "-1.0f";
    const MaskTerms terms = terms_of(e->operation == O::convert ? e->operands[0] : e);
    const bool is_distance = terms.has_distance() && terms.q * terms.q == 1 && terms.shift == 0;
    return is_distance && terms.terms.empty() ? Growth("-1.0f") : Growth{};
  }
  // The text of an expression that is the same for all pairs of a head.
  static Growth text_of(const Expression& e) {
    const auto operand = [&](int i) { return text_of(*e.operands[static_cast<std::size_t>(i)]); };
    const auto joined = [&](const char* sign) -> Growth {
      const Growth a = operand(0), b = operand(1);
      return a && b ? Growth("(" + *a + " " + sign + " " + *b + ")") : Growth{};
    };
    switch (e.operation) {
      case O::literal:
      case O::name:
        return e.text;
      case O::unknown: {
        std::string words;
        for (const std::string& word : e.words) words += (words.empty() ? "" : " ") + word;
        return words.empty() ? Growth{} : Growth(words);
      }
      case O::negate: {
        const Growth text = operand(0);
        return text ? Growth("(-" + *text + ")") : text;
      }
      case O::convert: {
        if (e.type != ValueType::real) return {};
        const Growth text = operand(0);
        return text ? Growth("static_cast<float>(" + *text + ")") : text;
      }
      case O::add:
        return joined("+");
      case O::subtract:
        return joined("-");
      case O::multiply:
        return joined("*");
      case O::divide:
        return joined("/");
      default:
        return {};
    }
  }

  const VariantDefinition& d_;
  int logits_ = 0;
  bool of_past_ = false;
};

}  // namespace

LogitTilt tilt_of(const VariantDefinition& definition) {
  if (definition.logits.empty()) return {};
  return TiltReader(definition).read();
}

}  // namespace kiln
