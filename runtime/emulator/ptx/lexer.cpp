#include "runtime/emulator/ptx/lexer.h"

#include <algorithm>
#include <array>

#include "runtime/emulator/machine/faults.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint8_t kStart = 1;  // may begin an identifier
constexpr std::uint8_t kInside = 2;
constexpr std::uint8_t kDigit = 4;
constexpr std::uint8_t kSpace = 8;
constexpr std::uint8_t kPunctuation = 16;

constexpr std::array<std::uint8_t, 256> make_classes() {
  std::array<std::uint8_t, 256> classes{};
  const auto set = [&](std::string_view characters, std::uint8_t bits) {
    for (char c : characters) classes[static_cast<unsigned char>(c)] |= bits;
  };
  set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$", kStart | kInside);
  set("0123456789", kInside | kDigit);
  set("%", kStart | kPunctuation);
  set(" \t\r\n\f\v", kSpace);
  set(",;:[](){}<>@!|+-*/~^&=?", kPunctuation);
  return classes;
}
constexpr std::array<std::uint8_t, 256> kClasses = make_classes();

bool is_a(char c, std::uint8_t bits) {
  return (kClasses[static_cast<unsigned char>(c)] & bits) != 0;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string out;
  for (char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    }
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

std::string describe(const Token& token) {
  if (token.kind == TokenKind::end) return "the end of the text";
  if (token.kind == TokenKind::string) return "the string \"" + printable(token.text) + "\"";
  return "'" + printable(token.text) + "'";
}

void Lexer::skip_comment() {
  if (at(position_ + 1) == '/') {
    skip_line();
    return;
  }
  const std::size_t end = text_.find("*/", position_ + 2);
  if (end == std::string_view::npos) raise_ptx(line_, "the comment that begins here never ends");
  for (std::size_t i = position_; i < end; ++i) line_ += text_[i] == '\n';
  position_ = end + 2;
}

// # 12 "file.cu", as preprocessors leave it. Other directives would change the text's meaning.
void Lexer::skip_line_marker() {
  std::size_t next = position_ + 1;
  while (at(next) == ' ' || at(next) == '\t') ++next;
  if (!is_a(at(next), kDigit) && text_.substr(std::min(next, text_.size()), 4) != "line") {
    raise_ptx(line_, "preprocessor directives are not supported");
  }
  skip_line();
}

void Lexer::skip_line() {
  const std::size_t end = text_.find('\n', position_);
  position_ = end == std::string_view::npos ? text_.size() : end;
}

bool Lexer::skip_space() {
  const std::size_t begin = position_;
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (is_a(c, kSpace)) {
      line_ += c == '\n';
      ++position_;
    } else if (c == '/' && (at(position_ + 1) == '/' || at(position_ + 1) == '*')) {
      skip_comment();
    } else if (c == '#') {
      skip_line_marker();
    } else {
      break;
    }
  }
  return position_ != begin;
}

std::size_t Lexer::word_end(std::size_t begin) const {
  std::size_t end = begin + 1;
  while (true) {
    while (is_a(at(end), kInside)) ++end;
    if (at(end) != ':' || at(end + 1) != ':' || !is_a(at(end + 2), kInside)) return end;
    end += 2;
  }
}

// A run of digits and letters is one token, so that 12abc is a wrong number and not two tokens.
std::size_t Lexer::number_end(std::size_t begin, TokenKind* kind) const {
  *kind = TokenKind::integer;
  std::size_t end = begin;
  const char second = static_cast<char>(at(begin + 1) | 0x20);
  if (at(begin) == '0' && (second == 'f' || second == 'd')) {
    *kind = TokenKind::real;
  } else if (at(begin) != '0' || (second != 'x' && second != 'b')) {
    while (is_a(at(end), kDigit)) ++end;
    if (at(end) == '.' && (is_a(at(end + 1), kDigit) || !is_a(at(end + 1), kStart))) {
      *kind = TokenKind::real;
      ++end;
      while (is_a(at(end), kDigit)) ++end;
    }
    if ((at(end) | 0x20) == 'e') {
      const std::size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
      if (is_a(at(end + 1 + sign), kDigit)) {
        *kind = TokenKind::real;
        end += 1 + sign;
      }
    }
  }
  while (is_a(at(end), kInside)) ++end;
  return end;
}

std::string_view Lexer::string_body() {
  const std::size_t begin = position_ + 1;
  std::size_t end = begin;
  while (end < text_.size() && text_[end] != '"' && text_[end] != '\n') {
    end += text_[end] == '\\' ? 2 : 1;
  }
  if (at(end) != '"') raise_ptx(line_, "the string that begins here never ends");
  position_ = end + 1;
  return text_.substr(begin, end - begin);
}

Token Lexer::next() {
  Token token;
  token.joined = !skip_space() && position_ != 0;
  token.line = line_;
  if (position_ == text_.size()) return token;
  const std::size_t begin = position_;
  const char c = text_[begin];
  std::size_t end = begin + 1;
  if (is_a(c, kStart) && (c != '%' || is_a(at(end), kStart))) {
    token.kind = TokenKind::identifier;
    while (is_a(at(end), kInside)) ++end;
  } else if (c == '.' && is_a(at(end), kInside)) {
    token.kind = TokenKind::word;
    end = word_end(begin);
  } else if (is_a(c, kDigit)) {
    end = number_end(begin, &token.kind);
  } else if (c == '"') {
    token.kind = TokenKind::string;
    token.text = string_body();
    return token;
  } else if (is_a(c, kPunctuation)) {
    token.kind = TokenKind::symbol;
  } else {
    raise_ptx(line_, "'" + printable(text_.substr(begin, 1)) + "' has no meaning in PTX");
  }
  token.text = text_.substr(begin, end - begin);
  position_ = end;
  return token;
}

void Lexer::skip_block(std::uint32_t opening_line) {
  std::size_t depth = 1;
  while (depth > 0) {
    skip_space();
    if (position_ == text_.size()) {
      raise_ptx(opening_line,
                "expected the '}' of the block that begins here, got the end of the text");
    }
    const char c = text_[position_];
    if (c == '"') {
      string_body();
      continue;
    }
    depth += c == '{';
    depth -= c == '}';
    ++position_;
  }
}

}  // namespace kiln::runtime::emulator
