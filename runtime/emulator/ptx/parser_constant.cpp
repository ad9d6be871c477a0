// Constants and constant expressions (PTX ISA, "Constants" and "Constant Expression Evaluation").
#include <bit>
#include <charconv>
#include <system_error>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/parser.h"

namespace kiln::runtime::emulator {
namespace {

constexpr int kDeepest = 200;  // nested parentheses and operators

int precedence(std::string_view op) {
  constexpr std::pair<std::string_view, int> kLevels[] = {
      {"||", 1}, {"&&", 2}, {"|", 3},  {"^", 4},  {"&", 5},  {"==", 6},
      {"!=", 6}, {"<=", 7}, {">=", 7}, {"<", 7},  {">", 7},  {"<<", 8},
      {">>", 8}, {"+", 9},  {"-", 9},  {"*", 10}, {"/", 10}, {"%", 10}};
  for (const auto& [text, level] : kLevels) {
    if (text == op) return level;
  }
  return 0;
}

std::uint64_t divide(const Constant& a, const Constant& b, bool remainder, std::uint32_t line) {
  if (b.bits == 0) raise_ptx(line, "division by zero in a constant expression");
  if (a.is_unsigned || b.is_unsigned) return remainder ? a.bits % b.bits : a.bits / b.bits;
  if (b.bits == ~std::uint64_t{0}) return remainder ? 0 : 0 - a.bits;  // INT64_MIN / -1 wraps
  const auto x = static_cast<std::int64_t>(a.bits);
  const auto y = static_cast<std::int64_t>(b.bits);
  return static_cast<std::uint64_t>(remainder ? x % y : x / y);
}

std::uint64_t shift(const Constant& a, std::uint64_t by, bool left) {
  const bool fill = !a.is_unsigned && (a.bits >> 63) != 0 && !left;
  if (by > 63) return fill ? ~std::uint64_t{0} : 0;
  if (left) return a.bits << by;
  return fill ? ~(~a.bits >> by) : a.bits >> by;
}

bool less(const Constant& a, const Constant& b) {
  if (a.is_unsigned || b.is_unsigned) return a.bits < b.bits;
  return static_cast<std::int64_t>(a.bits) < static_cast<std::int64_t>(b.bits);
}

Constant apply(std::string_view op, const Constant& a, const Constant& b, std::uint32_t line) {
  const bool is_unsigned = a.is_unsigned || b.is_unsigned;
  const auto truth = [](bool value) { return Constant{value ? 1u : 0u, false}; };
  if (op == "<<") return {shift(a, b.bits, true), a.is_unsigned};
  if (op == ">>") return {shift(a, b.bits, false), a.is_unsigned};
  if (op == "||") return truth(a.bits != 0 || b.bits != 0);
  if (op == "&&") return truth(a.bits != 0 && b.bits != 0);
  if (op == "==") return truth(a.bits == b.bits);
  if (op == "!=") return truth(a.bits != b.bits);
  if (op == "<") return truth(less(a, b));
  if (op == ">") return truth(less(b, a));
  if (op == "<=") return truth(!less(b, a));
  if (op == ">=") return truth(!less(a, b));
  switch (op.front()) {
    case '|':
      return {a.bits | b.bits, is_unsigned};
    case '^':
      return {a.bits ^ b.bits, is_unsigned};
    case '&':
      return {a.bits & b.bits, is_unsigned};
    case '+':
      return {a.bits + b.bits, is_unsigned};
    case '-':
      return {a.bits - b.bits, is_unsigned};
    case '*':
      return {a.bits * b.bits, is_unsigned};
    default:
      return {divide(a, b, op == "%", line), is_unsigned};
  }
}

Constant read_integer(const Token& token) {
  std::string_view digits = token.text;
  Constant value;
  const auto drop_suffix = [&] {
    if (!digits.empty() && digits.back() == 'U') {
      digits.remove_suffix(1);
      value.is_unsigned = true;
    }
  };
  drop_suffix();
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0') {
    const char second = static_cast<char>(digits[1] | 0x20);
    base = second == 'x' ? 16 : second == 'b' ? 2 : 8;
    digits.remove_prefix(base == 8 ? 1 : 2);
  }
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value.bits, base);
  if (error == std::errc::result_out_of_range) {
    raise_ptx(token.line, "the integer " + describe(token) + " does not fit in 64 bits");
  }
  if (error != std::errc{} || stop != end) {
    raise_ptx(token.line, describe(token) + " is not a number");
  }
  if (value.bits >> 63 != 0) value.is_unsigned = true;
  return value;
}

}  // namespace

std::uint64_t Parser::parse_real(Type* type) {
  const Token token = take();
  const std::string_view text = token.text;
  const char* end = text.data() + text.size();
  const bool is_bits =
      text.size() > 2 && text[0] == '0' && ((text[1] | 0x20) == 'f' || (text[1] | 0x20) == 'd');
  if (!is_bits) {
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc::invalid_argument || stop != end) {
      raise_ptx(token.line, describe(token) + " is not a number");
    }
    if (error == std::errc::result_out_of_range) {
      raise_ptx(token.line, "the number " + describe(token) + " does not fit in 64 bits");
    }
    *type = Type::none;
    return std::bit_cast<std::uint64_t>(value);
  }
  const bool single = (text[1] | 0x20) == 'f';
  std::uint64_t bits = 0;
  const auto [stop, error] = std::from_chars(text.data() + 2, end, bits, 16);
  if (error != std::errc{} || stop != end || text.size() != (single ? 10u : 18u)) {
    raise_ptx(token.line, "expected " + std::string(single ? "8" : "16") +
                              " hexadecimal digits in " + describe(token));
  }
  *type = single ? Type::f32 : Type::f64;
  return bits;
}

std::string_view Parser::binary_operator() const {
  if (token_.kind != TokenKind::symbol) return {};
  // Two-character operators are two tokens, the text of which is contiguous.
  const std::string_view rest(
      token_.text.data(),
      static_cast<std::size_t>(module_.text->data() + module_.text->size() - token_.text.data()));
  const std::string_view two = rest.substr(0, 2);
  if (two.size() == 2 && precedence(two) > 0) return two;
  const std::string_view one = rest.substr(0, 1);
  return precedence(one) > 0 ? one : std::string_view{};
}

Constant Parser::parse_ternary(int depth) {
  const Constant condition = parse_binary(1, depth + 1);
  if (!accept('?')) return condition;
  const Constant then = parse_ternary(depth + 1);
  expect(':');
  const Constant otherwise = parse_ternary(depth + 1);
  return condition.bits != 0 ? then : otherwise;
}

Constant Parser::parse_binary(int least, int depth) {
  Constant left = parse_unary(depth + 1);
  while (true) {
    const std::string_view op = binary_operator();
    const int level = precedence(op);
    if (level == 0 || level < least) return left;
    const std::uint32_t line = token_.line;
    for (std::size_t i = 0; i < op.size(); ++i) take();
    left = apply(op, left, parse_binary(level + 1, depth + 1), line);
  }
}

Constant Parser::parse_unary(int depth) {
  if (depth > kDeepest) raise_ptx(token_.line, "the constant expression is nested too deeply");
  if (accept('-')) {
    const Constant value = parse_unary(depth + 1);
    return {0 - value.bits, value.is_unsigned && (value.bits << 1) != 0};
  }
  if (accept('+')) return parse_unary(depth + 1);
  if (accept('~')) {
    const Constant value = parse_unary(depth + 1);
    return {~value.bits, value.is_unsigned};
  }
  if (accept('!')) return {parse_unary(depth + 1).bits == 0 ? 1u : 0u, false};
  return parse_primary(depth);
}

Constant Parser::parse_primary(int depth) {
  if (token_.kind == TokenKind::integer) return read_integer(take());
  if (token_.is_identifier("WARP_SZ")) {
    take();
    return {32, false};
  }
  if (accept('(')) {
    // A cast: (.s64) or (.u64).
    const bool to_signed = token_.is_word(".s64");
    if (to_signed || token_.is_word(".u64")) {
      take();
      expect(')');
      return {parse_unary(depth + 1).bits, !to_signed};
    }
    const Constant value = parse_ternary(depth + 1);
    expect(')');
    return value;
  }
  unexpected("a constant");
}

}  // namespace kiln::runtime::emulator
