#include "jit/op/expression.h"

#include <array>
#include <optional>
#include <utility>

#include "jit/op/expression_tokens.h"

namespace kiln {
namespace {

using O = Operation;
using T = ValueType;

constexpr int kMostDepth = 64;
constexpr int kMostNodes = 512;

struct Binary {
  std::string_view text;
  int precedence;  // a higher one binds closer
  O operation;
};
constexpr std::array<Binary, 24> kBinaries{
    {{"*", 10, O::multiply},    {"/", 10, O::divide},     {"%", 10, O::remainder},
     {"+", 9, O::add},          {"-", 9, O::subtract},    {"<<", 8, O::shift_left},
     {">>", 8, O::shift_right}, {"<", 7, O::less},        {"<=", 7, O::at_most},
     {">", 7, O::more},         {">=", 7, O::at_least},   {"==", 6, O::equal},
     {"!=", 6, O::differ},      {"not_eq", 6, O::differ}, {"&", 5, O::bit_and},
     {"bitand", 5, O::bit_and}, {"^", 4, O::bit_xor},     {"xor", 4, O::bit_xor},
     {"|", 3, O::bit_or},       {"bitor", 3, O::bit_or},  {"&&", 2, O::both},
     {"and", 2, O::both},       {"||", 1, O::either},     {"or", 1, O::either}}};
constexpr std::pair<std::string_view, O> kUnaries[] = {{"-", O::negate},
                                                       {"~", O::complement},
                                                       {"compl", O::complement},
                                                       {"!", O::invert},
                                                       {"not", O::invert}};
constexpr std::pair<std::string_view, T> kTypes[] = {
    {"bool", T::boolean}, {"int", T::integer}, {"float", T::real}};

// Of two bools, & and | are && and ||: nothing here has effects.
O operation_of(O written, T a, T b) {
  if (a != T::boolean || b != T::boolean) return written;
  return written == O::bit_and ? O::both : written == O::bit_or ? O::either : written;
}

constexpr int kEquality = 6, kComparison = 7;  // precedences

// A cast of an int or a bool to long long, which is unknown where it is not compared.
constexpr std::string_view kWide = "long long";
bool is_wide(const Expression& e) {
  return e.operation == O::unknown && e.text == kWide && !e.operands.empty() &&
         (e.operands[0]->type == T::integer || e.operands[0]->type == T::boolean);
}
// Wide ints compare as the ints that they were made of do, with each other and with ints.
void narrow(ExpressionPointer& a, ExpressionPointer& b) {
  const auto is_whole = [](const Expression& e) { return e.type == T::integer || is_wide(e); };
  if (!is_whole(*a) || !is_whole(*b)) return;
  for (ExpressionPointer* const side : {&a, &b}) {
    if (is_wide(**side)) *side = (*side)->operands[0];
  }
}

const Binary* find_binary(std::string_view text) {
  for (const Binary& one : kBinaries) {
    if (one.text == text) return &one;
  }
  return nullptr;
}
std::optional<T> find_type(std::string_view text) {
  for (const auto& [name, type] : kTypes) {
    if (name == text) return type;
  }
  return std::nullopt;
}

// C++'s usual conversions, of bools, ints and floats.
T arithmetic(T a, T b) {
  if (a == T::unknown || b == T::unknown) return T::unknown;
  return a == T::real || b == T::real ? T::real : T::integer;
}
T promoted(T a) { return a == T::boolean ? T::integer : a; }

T type_of_binary(O operation, T a, T b) {
  switch (operation) {
    case O::less:
    case O::at_most:
    case O::more:
    case O::at_least:
    case O::equal:
    case O::differ:
    case O::both:
    case O::either:
      return T::boolean;
    case O::shift_left:
    case O::shift_right:
      return b == T::unknown ? T::unknown : promoted(a);
    default:
      return arithmetic(a, b);
  }
}

// Thrown within this file where the text cannot be followed.
struct Lost {
  std::string at;
};

class Parser {
 public:
  Parser(std::string_view text, const std::function<NamedType(std::string_view)>& type_of)
      : tokens_(tokens_of(text)), type_of_(type_of) {}

  ExpressionPointer parse() {
    ExpressionPointer tree = ternary();
    if (!peek().empty()) lose();
    return tree;
  }

 private:
  std::string_view peek(std::size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() ? std::string_view(tokens_[at_ + ahead])
                                        : std::string_view();
  }
  [[noreturn]] void lose() const {
    throw Lost{peek().empty() ? "the end" : "'" + std::string(peek()) + "'"};
  }
  bool take(std::string_view text) {
    if (peek() != text) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view text) {
    if (!take(text)) lose();
  }

  ExpressionPointer node(O operation, T type, std::vector<ExpressionPointer> operands,
                         std::string text = "", std::int64_t value = 0) {
    if (++nodes_ > kMostNodes) throw Lost{"its length"};
    return std::make_shared<const Expression>(
        Expression{operation, type, std::move(text), value, std::move(operands)});
  }

  ExpressionPointer ternary() {
    if (++depth_ > kMostDepth) throw Lost{"the depth of its brackets"};
    ExpressionPointer tree = binary(1);
    if (take("?")) {
      ExpressionPointer first = ternary();
      expect(":");
      ExpressionPointer second = ternary();
      const T type =
          first->type == second->type ? first->type : arithmetic(first->type, second->type);
      tree = node(O::choose, type, {tree, first, second});
    }
    --depth_;
    return tree;
  }

  ExpressionPointer binary(int least_precedence) {
    ExpressionPointer left = unary();
    while (const Binary* const found = find_binary(peek())) {
      if (found->precedence < least_precedence) break;
      ++at_;
      ExpressionPointer right = binary(found->precedence + 1);
      if (found->precedence == kEquality || found->precedence == kComparison) narrow(left, right);
      const O operation = operation_of(found->operation, left->type, right->type);
      left = node(operation, type_of_binary(operation, left->type, right->type), {left, right});
    }
    return left;
  }

  ExpressionPointer unary() {
    if (++depth_ > kMostDepth) throw Lost{"the depth of its signs"};
    ExpressionPointer tree = signed_operand();
    --depth_;
    return tree;
  }
  ExpressionPointer signed_operand() {
    if (take("+")) {
      ExpressionPointer operand = unary();
      return node(O::convert, promoted(operand->type), {operand});
    }
    for (const auto& [text, operation] : kUnaries) {
      if (!take(text)) continue;
      ExpressionPointer operand = unary();
      const T type = operation == O::invert ? T::boolean : promoted(operand->type);
      return node(operation, type, {operand});
    }
    // A cast as in C.
    if (const auto type = find_type(peek(1)); type && peek() == "(" && peek(2) == ")") {
      at_ += 3;
      return node(O::convert, *type, {unary()});
    }
    return primary();
  }

  ExpressionPointer primary() {
    const std::string token(peek());
    if (take("(")) {
      ExpressionPointer inner = ternary();
      expect(")");
      return inner;
    }
    if (is_number(token)) return literal(token);
    if (!is_name(token)) lose();
    if (token == "true" || token == "false") {
      ++at_;
      return node(O::literal, T::boolean, {}, token, token == "true" ? 1 : 0);
    }
    if (token == "static_cast" && peek(2) == "long" && peek(3) == "long" && peek(4) == ">") {
      at_ += 5;
      expect("(");
      ExpressionPointer inner = ternary();
      expect(")");
      return node(O::unknown, T::unknown, {inner}, std::string(kWide));
    }
    if (token == "static_cast" && peek(1) == "<" && peek(3) == ">") {
      if (const auto type = find_type(peek(2)); type && peek(4) == "(") {
        at_ += 4;
        return converted(*type);
      }
      lose();
    }
    if (const auto type = find_type(token); type && peek(1) == "(") {
      ++at_;
      return converted(*type);
    }
    return named();
  }
  ExpressionPointer converted(T type) {
    expect("(");
    ExpressionPointer inner = ternary();
    expect(")");
    return node(O::convert, type, {inner});
  }

  ExpressionPointer literal(const std::string& token) {
    ++at_;
    const Number number = read_number(token);
    const T type = number.is_int ? T::integer : number.is_float ? T::real : T::unknown;
    return node(type == T::unknown ? O::unknown : O::literal, type, {}, token, number.value);
  }

  // A name, a member such as at.q, or a call.
  ExpressionPointer named() {
    const std::size_t first = at_;
    std::string text(peek());
    ++at_;
    while ((peek() == "." || peek() == "::") && is_name(peek(1))) {
      text += std::string(peek()) + std::string(peek(1));
      at_ += 2;
    }
    if (peek() == "(") return call(text);
    const NamedType known = type_of_(text);
    if (!known.exists || peek() == "." || peek() == "::") {
      at_ = first;
      lose();
    }
    return node(O::name, known.type, {}, text);
  }

  ExpressionPointer call(const std::string& text) {
    const std::size_t bracket = at_;
    if (ExpressionPointer known = known_call(text)) return known;
    at_ = bracket;
    int open = 0;
    do {
      if (peek().empty()) lose();
      open += peek() == "(" ? 1 : peek() == ")" ? -1 : 0;
      ++at_;
    } while (open > 0);
    // A member, a call or a name behind a call's result might be anything that belongs to it.
    if (peek() == "." || peek() == "(" || peek() == "::") lose();
    const std::string whole = text + joined_from(bracket);
    if (const NamedType known = type_of_(whole); known.exists) {
      return node(O::name, known.type, {}, whole);
    }
    return unknown_call(text, bracket);
  }
  std::string joined_from(std::size_t token) const {
    std::string joined;
    for (; token < at_; ++token) joined += tokens_[token];
    return joined;
  }
  // From `bracket` to where the parser is.
  ExpressionPointer unknown_call(const std::string& text, std::size_t bracket) {
    Expression made{O::unknown, T::unknown, text + "()"};
    made.words = {text};
    made.words.insert(made.words.end(), tokens_.begin() + static_cast<std::ptrdiff_t>(bracket),
                      tokens_.begin() + static_cast<std::ptrdiff_t>(at_));
    return std::make_shared<const Expression>(std::move(made));
  }
  ExpressionPointer known_call(const std::string& text) {
    const bool one = text == "abs" || text == "fabsf" || text == "fabs";
    if (!one && text != "min" && text != "max" && text != "fminf" && text != "fmaxf") {
      return nullptr;
    }
    if (type_of_(text).exists) return nullptr;  // a table of this name hides the function
    const bool floats = text[0] == 'f';
    const std::size_t bracket = at_;
    expect("(");
    std::vector<ExpressionPointer> operands{ternary()};
    while (take(",")) operands.push_back(ternary());
    expect(")");
    if (operands.size() != (one ? 1u : 2u)) lose();
    T type = promoted(operands.front()->type);
    if (!one && promoted(operands.back()->type) != type) type = T::unknown;
    if (floats && type != T::real) type = T::unknown;
    const O operation = one ? O::magnitude : text.find("min") != text.npos ? O::least : O::largest;
    if (type == T::unknown) return unknown_call(text, bracket);
    return node(operation, type, std::move(operands));
  }

  std::vector<std::string> tokens_;
  const std::function<NamedType(std::string_view)>& type_of_;
  std::size_t at_ = 0;
  int depth_ = 0, nodes_ = 0;
};

}  // namespace

ParsedExpression parse_expression(std::string_view text,
                                  const std::function<NamedType(std::string_view)>& type_of) {
  if (const std::string foreign = foreign_character(text); !foreign.empty()) {
    return {nullptr, "'" + foreign + "'"};
  }
  try {
    return {Parser(text, type_of).parse(), ""};
  } catch (const Lost& lost) {
    return {nullptr, lost.at};
  }
}

}  // namespace kiln
