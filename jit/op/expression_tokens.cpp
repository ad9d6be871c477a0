#include "jit/op/expression_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace kiln {
namespace {

// Longer ones come first.
constexpr std::array<std::string_view, 8> kPairs{"<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};
constexpr std::array<std::string_view, 18> kForeign{"\"", "'",  "{",  "}",   "[",   "]",
                                                    "\\", "@",  "$",  "`",   "++",  "--",
                                                    "->", "<:", "<%", "<=>", "<<=", ">>="};

bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_of_name(char c) {
  return is_decimal(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Behind the comment that begins here, or `at`.
std::size_t skip_comment(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return text.size();
  if (!rest.starts_with("/*")) return at;
  const std::size_t end = text.find("*/", at + 2);
  return end == std::string_view::npos ? text.size() : end + 2;
}

// Where a number ends that begins at `at`: letters, digits, points, signs behind an exponent.
std::size_t number_end(std::string_view text, std::size_t at) {
  const bool is_hex = text.substr(at).starts_with("0x") || text.substr(at).starts_with("0X");
  const std::string_view exponents = is_hex ? "pP" : "eE";
  std::size_t end = at + 1;
  for (; end < text.size(); ++end) {
    const bool is_sign = text[end] == '+' || text[end] == '-';
    if (is_sign && exponents.find(text[end - 1]) != std::string_view::npos) continue;
    if (!is_of_name(text[end]) && text[end] != '.') break;
  }
  return end;
}

std::string without_suffix_f(std::string_view token) {
  if (token.ends_with('f') || token.ends_with('F')) token.remove_suffix(1);
  return std::string(token);
}

}  // namespace

std::string foreign_character(std::string_view text) {
  for (const std::string_view foreign : kForeign) {
    if (text.find(foreign) != std::string_view::npos) return std::string(foreign);
  }
  // Assignments: an = that is part of no comparison.
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80 || (c < 0x20 && c != '\t')) return "a character that is not plain ASCII";
    if (c != '=') continue;
    const bool is_pair = i + 1 < text.size() && text[i + 1] == '=';
    if (is_pair) {
      ++i;
    } else if (i == 0 || std::string_view("<>!").find(text[i - 1]) == std::string_view::npos) {
      return "=";
    }
  }
  return "";
}

std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\t') {
      ++at;
      continue;
    }
    if (const std::size_t behind = skip_comment(text, at); behind > at) {
      at = behind;
      continue;
    }
    std::size_t length = 1;
    const bool is_point = text[at] == '.' && at + 1 < text.size();
    if (is_decimal(text[is_point ? at + 1 : at])) {
      length = number_end(text, at) - at;
    } else if (is_of_name(text[at])) {
      while (at + length < text.size() && is_of_name(text[at + length])) ++length;
    } else {
      const std::string_view rest = text.substr(at);
      const auto pair =
          std::ranges::find_if(kPairs, [&](std::string_view p) { return rest.starts_with(p); });
      if (pair != kPairs.end() || rest.starts_with("::")) length = 2;
    }
    tokens.emplace_back(text.substr(at, length));
    at += length;
  }
  return tokens;
}

bool is_name(std::string_view token) {
  return !token.empty() && is_of_name(token[0]) && !is_decimal(token[0]);
}
bool is_number(std::string_view token) {
  return !token.empty() &&
         (is_decimal(token[0]) || (token.size() > 1 && token[0] == '.' && is_decimal(token[1])));
}

Number read_number(std::string_view token) {
  const bool is_prefixed = token.size() > 2 && token[0] == '0' && !is_decimal(token[1]);
  const char letter = is_prefixed ? token[1] : ' ';
  int base = 10;
  std::string_view digits = token;
  if (letter == 'x' || letter == 'X' || letter == 'b' || letter == 'B') {
    base = letter == 'x' || letter == 'X' ? 16 : 2;
    digits = token.substr(2);
  } else if (token.size() > 1 && token[0] == '0') {
    base = 8;
  }
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (error == std::errc() && stop == end) {
    const bool fits = value <= 0x7fffffff;
    return {.is_int = fits, .is_float = false, .value = fits ? value : 0};
  }
  if (base == 16 || base == 2) return {};
  const std::string plain = without_suffix_f(token);
  const bool is_plain = plain.find_first_not_of("0123456789.eE+-") == std::string::npos;
  const bool has_point = plain.find_first_of(".eE") != std::string::npos;
  return {.is_int = false, .is_float = is_plain && has_point, .value = 0};
}

}  // namespace kiln
