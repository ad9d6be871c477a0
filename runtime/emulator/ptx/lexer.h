// Tokens of PTX text (PTX ISA, "Syntax"). They are views; nothing is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kiln::runtime::emulator {

enum class TokenKind : std::uint8_t {
  end,
  identifier,  // kernel, %r1, $L__BB0_2, _
  word,        // .b32, .shared::cluster, .16x64b: a directive or modifier with its dot
  integer,     // 12, 0x1f, 017, 0b11, any of them with U
  real,        // 1.5e-3, 0f3F800000, 0d3FF0000000000000
  string,      // the text between the quotes, escapes as written
  symbol       // one character of punctuation
};

struct Token {
  TokenKind kind = TokenKind::end;
  bool joined = false;  // nothing stands between the token before and this one
  std::uint32_t line = 1;
  std::string_view text;

  bool is(char punctuation) const {
    return kind == TokenKind::symbol && text.front() == punctuation;
  }
  bool is_word(std::string_view word) const { return kind == TokenKind::word && text == word; }
  bool is_identifier(std::string_view name) const {
    return kind == TokenKind::identifier && text == name;
  }
};

// For error messages: the token in quotes, cut short, unprintable bytes as \x80.
std::string describe(const Token& token);
std::string printable(std::string_view text);

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token next();
  // Behind an opening brace: goes behind the brace that closes it, whatever stands between.
  void skip_block(std::uint32_t opening_line);

 private:
  bool skip_space();  // and comments; whether there were any
  void skip_comment();
  void skip_line();
  void skip_line_marker();
  std::size_t number_end(std::size_t begin, TokenKind* kind) const;
  std::size_t word_end(std::size_t begin) const;
  std::string_view string_body();
  char at(std::size_t index) const { return index < text_.size() ? text_[index] : '\0'; }

  std::string_view text_;
  std::size_t position_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace kiln::runtime::emulator
