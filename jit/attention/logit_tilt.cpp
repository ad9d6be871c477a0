#include "jit/attention/logit_tilt.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "jit/attention/mask_names.h"
#include "jit/attention/mask_reach.h"
#include "jit/attention/mask_terms.h"
#include "jit/op/expression.h"
#include "jit/op/user_values.h"

namespace kiln {
namespace {

using O = Operation;

// The factors of the logit and of the key's index in a sum that is linear in both, as expressions
// of the device, "" for 0.
struct Factors {
  std::string logit{}, key{};
};
using Line = std::optional<Factors>;  // nothing: it is no such sum, as far as can be told
using Text = std::optional<std::string>;

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
    const Line line = line_of(*parsed.tree);
    if (!line || line->logit.empty()) return {};
    return {line->logit, line->key.empty() ? "0.0f" : line->key, from_row_, of_past_};
  }

 private:
  static constexpr std::string_view kLogit = "logit";

  // An expression of a head has one value for all its pairs, one of a row for all keys of a query.
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
      // Without words it is a number of another type, such as 2u, beside which a key's index wraps.
      return !e.words.empty() &&
             std::ranges::all_of(e.words, [&](const std::string& w) { return is_of(what, w); });
    }
    return std::ranges::all_of(e.operands, [&](const auto& one) { return is_of(what, *one); });
  }

  Line line_of(const Expression& e) {
    if (is_of(Of::row, e)) return Factors{};
    const auto operand = [&](int i) -> const Expression& {
      return *e.operands[static_cast<std::size_t>(i)];
    };
    switch (e.operation) {
      case O::name:
        if (e.text == kLogit) return Factors{"1.0f", ""};
        if (e.text == "kv" || e.text == "at.kv") return Factors{"", "1.0f"};
        if (e.text == "at.distance") return Factors{"", "-1.0f"};
        return {};
      case O::add:
        return sum(line_of(operand(0)), line_of(operand(1)), " + ");
      case O::subtract:
        return sum(line_of(operand(0)), line_of(operand(1)), " - ");
      case O::negate:
        return sum(Factors{}, line_of(operand(0)), " - ");
      case O::convert: {  // to a float, or of an int to an int
        const bool is_int = e.type == ValueType::integer && operand(0).type == ValueType::integer;
        if (e.type != ValueType::real && !is_int) return {};
        return line_of(operand(0));
      }
      case O::multiply:
        if (const Line line = product(operand(0), operand(1), " * ")) return line;
        return product(operand(1), operand(0), " * ");
      case O::divide:  // of ints, it is rounded
        if (!is_real(operand(0)) && !is_real(operand(1))) return {};
        return product(operand(0), operand(1), " / ");
      case O::magnitude:
        return line_of_magnitude(e.operands[0]);
      default:
        return {};
    }
  }
  static Line sum(const Line& a, const Line& b, const std::string& sign) {
    if (!a || !b) return {};
    const auto of = [&](const std::string& first, const std::string& second) {
      if (second.empty()) return first;
      return "(" + (first.empty() ? "0.0f" : first) + sign + second + ")";
    };
    return Factors{of(a->logit, b->logit), of(a->key, b->key)};
  }
  // Returns the factors of `one` times, or by, `factor`, which must be of a head.
  Line product(const Expression& one, const Expression& factor, const std::string& sign) {
    if (!is_of(Of::head, factor)) return {};
    const Line line = line_of(one);
    const Text text = text_of(factor);
    if (!line || !text) return {};
    const auto of = [&](const std::string& first) {
      return first.empty() ? first : "(" + first + sign + *text + ")";
    };
    return Factors{of(line->logit), of(line->key)};
  }
  static constexpr int kOfRow = -1;  // row is q - (len_kv - len_q)
  // abs(q - kv) is q - kv where keys are not behind the query, and likewise abs(row - kv).
  Line line_of_magnitude(const ExpressionPointer& e) {
    const MaskTerms terms = terms_of(e->operation == O::convert ? e->operands[0] : e);
    const bool is_distance = terms.has_distance() && terms.q * terms.q == 1;
    if (e->text != "at.distance" && (!is_distance || !terms.terms.empty())) return {};
    const int shift = e->text == "at.distance" ? 0 : terms.q * terms.shift;
    if (shift != 0 && shift != kOfRow) return {};
    if (!mask_shows_past(shift)) {
      if (shift != 0) return {};  // a causal mask of the call would not say so either
      of_past_ = true;
    }
    if (shift != 0) from_row_ = true;
    return Factors{"", "-1.0f"};
  }
  // Whether q - kv + shift * (len_kv - len_q) is 0 or more for all pairs that the mask shows.
  bool mask_shows_past(int shift) const {
    return std::ranges::any_of(reach_of(d_).bounds, [&](const MaskReach::Bound& bound) {
      return !bound.is_upper && bound.constant >= 0 && bound.shift == -shift && bound.terms.empty();
    });
  }
  bool is_real(const Expression& e) const {
    if (e.operation == O::name) {
      for (const VariantTensor& tensor : d_.tensors) {
        if (tensor.name == e.text) return is_float(tensor.dtype);
      }
    }
    const bool is_known = e.type != ValueType::unknown || e.operation == O::unknown;
    if (is_known) return e.type == ValueType::real;
    return std::ranges::any_of(e.operands, [&](const auto& one) { return is_real(*one); });
  }
  // Returns the text of an expression of a head.
  static Text text_of(const Expression& e) {
    const auto operand = [&](int i) { return text_of(*e.operands[static_cast<std::size_t>(i)]); };
    const auto joined = [&](const char* sign) -> Text {
      const Text a = operand(0), b = operand(1);
      return a && b ? Text("(" + *a + " " + sign + " " + *b + ")") : Text{};
    };
    switch (e.operation) {
      case O::literal:
      case O::name:
        return e.text;
      case O::unknown: {
        std::string words;
        for (const std::string& word : e.words) words += (words.empty() ? "" : " ") + word;
        return words.empty() ? Text{} : Text(words);
      }
      case O::negate: {
        const Text text = operand(0);
        return text ? Text("(-" + *text + ")") : text;
      }
      case O::convert: {
        if (e.type != ValueType::real) return {};
        const Text text = operand(0);
        return text ? Text("static_cast<float>(" + *text + ")") : text;
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
  bool from_row_ = false, of_past_ = false;
};

}  // namespace

LogitTilt tilt_of(const VariantDefinition& definition) {
  if (definition.logits.empty()) return {};
  return TiltReader(definition).read();
}

}  // namespace kiln
