#include "jit/op/user_text.h"

#include <algorithm>
#include <array>
#include <string>

#include "jit/op/process.h"

namespace kiln {
namespace {

// A directive's first character: itself, as a digraph, as a trigraph.
constexpr std::array<std::string_view, 3> kHashes{"#", "%:", "?\?="};
constexpr std::string_view kPlainInclude = "#include \"";

// Length of the hash that begins here, or 0.
std::size_t hash_at(std::string_view text, std::size_t at) {
  for (std::string_view hash : kHashes) {
    if (text.substr(at).starts_with(hash)) return hash.size();
  }
  return 0;
}

// The text with its lines joined where a backslash, perhaps as a trigraph, ends one.
std::string without_splices(std::string_view text) {
  std::string joined;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t backslash = text[i] == '\\' ? 1 : text.substr(i).starts_with("?\?/") ? 3 : 0;
    std::size_t end = i + backslash;
    if (backslash > 0) {
      while (end < text.size() && (text[end] == ' ' || text[end] == '\t' || text[end] == '\r'))
        ++end;
      if (end < text.size() && text[end] == '\n') {
        i = end + 1;
        continue;
      }
    }
    joined += text[i++];
  }
  return joined;
}

// Past blanks and comments, as may stand between a hash and its word.
std::size_t skip_blanks(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    if (text.substr(at).starts_with("/*")) {
      const std::size_t end = text.find("*/", at + 2);
      at = end == std::string_view::npos ? text.size() : end + 2;
    } else if (std::string_view(" \t\v\f\r").find(text[at]) != std::string_view::npos) {
      ++at;
    } else {
      break;
    }
  }
  return at;
}

// Whether tokens are joined, so that a word may come about that stands nowhere in the text.
bool joins_tokens(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t hash = hash_at(text, at);
    if (hash > 0 && hash_at(text, at + hash) > 0) return true;
  }
  return false;
}

bool is_own_include(std::string_view directive, std::string_view whole_text) {
  if (!directive.starts_with(kPlainInclude)) return false;
  directive = directive.substr(0, directive.find('"', kPlainInclude.size()));
  if (whole_text.find(directive) == std::string_view::npos) return false;  // over several lines
  const std::string_view name = directive.substr(kPlainInclude.size());
  return is_template_file(name);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Where a number that begins at `at` ends: letters, digits, points, separators, and signs behind an
// exponent's letter.
std::size_t end_of_number(std::string_view text, std::size_t at) {
  const bool is_hex = text.substr(at).starts_with("0x") || text.substr(at).starts_with("0X");
  const std::string_view exponents = is_hex ? "pP" : "eE";
  for (++at; at < text.size(); ++at) {
    const bool is_sign = text[at] == '+' || text[at] == '-';
    if (is_sign && exponents.find(text[at - 1]) != std::string_view::npos) continue;
    const bool is_separator =
        text[at] == '\'' && at + 1 < text.size() && is_word(text[at + 1]) && is_word(text[at - 1]);
    if (!is_word(text[at]) && text[at] != '.' && !is_separator) break;
  }
  return at;
}

// Whether a number is a double: it has a point or an exponent, and no suffix.
bool is_double(std::string_view number) {
  const bool is_hex = number.starts_with("0x") || number.starts_with("0X");
  const std::size_t exponent = number.find_first_of(is_hex ? "pP" : "eE");
  if (exponent == std::string_view::npos && (is_hex || number.find('.') == std::string_view::npos))
    return false;
  const std::string_view plain = is_hex ? "0123456789abcdefABCDEF.'" : "0123456789.'";
  const std::string_view digits = number.substr(is_hex ? 2 : 0, exponent - (is_hex ? 2 : 0));
  if (digits.find_first_not_of(plain) != std::string_view::npos) return false;
  return exponent == std::string_view::npos ||
         number.substr(exponent + 1).find_first_not_of("0123456789+-'") == std::string_view::npos;
}

// Behind the string, character or comment that begins here, or `at` where none does.
std::size_t skip_quoted(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return text.size();
  if (rest.starts_with("/*")) {
    const std::size_t end = text.find("*/", at + 2);
    return end == std::string_view::npos ? text.size() : end + 2;
  }
  if (text[at] != '"' && text[at] != '\'') return at;
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != text[at]) end += text[end] == '\\' ? 2 : 1;
  return std::min(text.size(), end + 1);
}

// A name, a number, or anything else: one character, a string, a comment.
struct Token {
  enum Kind { name, number, other } kind;
  std::string_view text;
};

// Requires: at < text.size().
Token token_at(std::string_view text, std::size_t at) {
  const std::size_t quoted = skip_quoted(text, at);
  if (quoted > at) return {Token::other, text.substr(at, quoted - at)};
  const bool is_point = text[at] == '.' && at + 1 < text.size();
  if (is_digit(text[is_point ? at + 1 : at])) {
    return {Token::number, text.substr(at, end_of_number(text, at) - at)};
  }
  if (!is_word(text[at])) return {Token::other, text.substr(at, 1)};
  std::size_t end = at;
  while (end < text.size() && is_word(text[end])) ++end;
  return {Token::name, text.substr(at, end - at)};
}

}  // namespace

std::string with_float_literals(std::string_view expression) {
  std::string text;
  for (std::size_t at = 0; at < expression.size();) {
    const Token token = token_at(expression, at);
    text += token.text;
    if (token.kind == Token::number && is_double(token.text)) text += 'f';
    at += token.text.size();
  }
  return text;
}

std::string with_calls(std::string_view expression, const std::vector<std::string>& names) {
  struct Bracket {
    std::size_t at;
    char kind;
    bool follows_name, has_comma;
  };
  std::string text(expression);
  std::vector<Bracket> open;
  bool follows_name = false;
  for (std::size_t at = 0; at < expression.size();) {
    const Token token = token_at(expression, at);
    const char c = token.kind == Token::other && token.text.size() == 1 ? token.text[0] : 'x';
    if (c == '[' || c == '(') open.push_back({at, c, follows_name, false});
    if (c == ',' && !open.empty()) open.back().has_comma = true;
    if ((c == ']' || c == ')') && !open.empty()) {
      const Bracket bracket = open.back();
      open.pop_back();
      if (c == ']' && bracket.kind == '[' && bracket.follows_name && bracket.has_comma) {
        text[bracket.at] = '(', text[at] = ')';
      }
    }
    if (c != ' ' && c != '\t') {
      follows_name =
          token.kind == Token::name && std::ranges::find(names, token.text) != names.end();
    }
    at += token.text.size();
  }
  return text;
}

bool mentions_name(std::string_view expression, std::string_view name) {
  for (std::size_t at = 0; at < expression.size();) {
    const Token token = token_at(expression, at);
    if (token.kind == Token::name && token.text == name) return true;
    at += token.text.size();
  }
  return false;
}

bool is_utf8(std::string_view text) {
  struct Form {
    unsigned first, last;      // first bytes of this form
    unsigned low, high;        // its second byte
    std::size_t continuation;  // how many bytes follow the first
  };
  constexpr std::array<Form, 8> kForms{{{0x00, 0x7f, 0, 0, 0},
                                        {0xc2, 0xdf, 0x80, 0xbf, 1},
                                        {0xe0, 0xe0, 0xa0, 0xbf, 2},
                                        {0xe1, 0xec, 0x80, 0xbf, 2},
                                        {0xed, 0xed, 0x80, 0x9f, 2},
                                        {0xee, 0xef, 0x80, 0xbf, 2},
                                        {0xf0, 0xf0, 0x90, 0xbf, 3},
                                        {0xf1, 0xf4, 0x80, 0xbf, 3}}};
  const auto byte_at = [&](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  for (std::size_t at = 0; at < text.size();) {
    const unsigned first = byte_at(at);
    const auto form = std::ranges::find_if(
        kForms, [first](const Form& f) { return f.first <= first && first <= f.last; });
    if (form == kForms.end()) return false;
    for (std::size_t i = 1; i <= form->continuation; ++i) {
      const unsigned low = i == 1 ? form->low : 0x80;
      // The last code point is 10ffff.
      const unsigned high = i == 1 && first == 0xf4 ? 0x8f : i == 1 ? form->high : 0xbf;
      if (byte_at(at + i) < low || byte_at(at + i) > high) return false;
    }
    at += 1 + form->continuation;
  }
  return true;
}

bool is_plain_expression(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n' || c == '\r' || c == '\0' || hash_at(text, i) > 0) return false;
  }
  return true;
}

bool reads_foreign_files(std::string_view text) {
  const std::string joined = without_splices(text);
  const std::string_view view = joined;
  for (const char* question : {"__has_include", "__has_embed"}) {
    if (view.find(question) != std::string_view::npos) return true;
  }
  const bool joins = joins_tokens(view);
  for (std::size_t at = 0; at < view.size(); ++at) {
    const std::size_t hash = hash_at(view, at);
    if (hash == 0) continue;
    const std::string_view word = view.substr(skip_blanks(view, at + hash));
    // Only conditions can ask for files, with a word that may have been joined.
    const bool asks =
        word.starts_with("elif") ||
        (word.starts_with("if") && !word.starts_with("ifdef") && !word.starts_with("ifndef"));
    if (joins && asks) return true;
    const bool reads =
        word.starts_with("include") || word.starts_with("import") || word.starts_with("embed");
    if (reads && !is_own_include(view.substr(at), text)) return true;
  }
  return false;
}

}  // namespace kiln
