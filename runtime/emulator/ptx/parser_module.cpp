// Modules: what stands outside of functions.
#include <algorithm>
#include <charconv>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/parser.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint64_t kMostFiles = (1u << 16) - 1;

}  // namespace

Parser::Parser(Module& module) : module_(module), lexer_(*module.text), token_(lexer_.next()) {
  module_.files.emplace_back();
  module_.locations.emplace_back();
}

void Parser::advance() {
  ticker_.tick();
  token_ = lexer_.next();
}

Token Parser::take() {
  const Token token = token_;
  advance();
  return token;
}

bool Parser::accept(char symbol) {
  if (!token_.is(symbol)) return false;
  advance();
  return true;
}

bool Parser::accept_word(std::string_view word) {
  if (!token_.is_word(word)) return false;
  advance();
  return true;
}

void Parser::expect(char symbol) {
  if (!accept(symbol)) unexpected("'" + std::string(1, symbol) + "'");
}

Token Parser::expect_kind(TokenKind kind, std::string_view what) {
  if (token_.kind != kind) unexpected(what);
  return take();
}

Token Parser::expect_identifier(std::string_view what) {
  return expect_kind(TokenKind::identifier, what);
}

void Parser::unexpected(std::string_view expected) const {
  raise_ptx(token_.line, "expected " + std::string(expected) + ", got " + describe(token_));
}

void Parser::duplicate(std::string_view name, std::uint32_t line) {
  raise_ptx(line, "'" + printable(name) + "' is declared twice");
}

// A plain integer literal from 0 to `most`.
std::uint32_t Parser::parse_small(std::string_view what, std::uint64_t most) {
  if (token_.kind != TokenKind::integer) unexpected(what);
  const std::uint32_t line = token_.line;
  const std::string written = describe(token_);
  const std::uint64_t value = parse_primary(0).bits;
  if (value > most) {
    raise_ptx(line, "expected " + std::string(what) + " of at most " + std::to_string(most) +
                        ", got " + written);
  }
  return static_cast<std::uint32_t>(value);
}

void Parser::parse_module() {
  if (!token_.is_word(".version")) unexpected("a PTX module, which begins with .version");
  parse_version();
  if (!token_.is_word(".target")) unexpected(".target");
  parse_target();
  while (token_.kind != TokenKind::end) parse_directive();
  check_symbols();
}

void Parser::parse_version() {
  take();
  const Token version = token_;
  if (version.kind != TokenKind::real) unexpected("a version such as 8.0");
  take();
  const char* end = version.text.data() + version.text.size();
  const auto major = std::from_chars(version.text.data(), end, module_.version_major);
  const bool sound = major.ec == std::errc{} && major.ptr != end && *major.ptr == '.';
  const auto minor = sound ? std::from_chars(major.ptr + 1, end, module_.version_minor) : major;
  if (!sound || minor.ec != std::errc{} || minor.ptr != end) {
    raise_ptx(version.line, "expected a version such as 8.0, got " + describe(version));
  }
}

// .target sm_90a, debug, texmode_independent
void Parser::parse_target() {
  take();
  do {
    const Token option = expect_identifier("a target such as sm_90a");
    if (module_.target.empty() && option.text.starts_with("sm_")) module_.target = option.text;
  } while (accept(','));
  if (module_.target.empty()) unexpected("a target such as sm_90a");
}

// .file 1 "path", 1700000000, 1234
void Parser::parse_file() {
  take();
  const std::uint32_t index = parse_small("a file's number", kMostFiles);
  const Token path = expect_kind(TokenKind::string, "a file's path");
  if (accept(',')) {
    parse_primary(0);
    expect(',');
    parse_primary(0);
  }
  if (index >= module_.files.size()) module_.files.resize(index + 1);
  module_.files[index] = path.text;
}

// Debug information: .section .debug_info { … }
void Parser::parse_section() {
  take();
  if (token_.kind != TokenKind::word && token_.kind != TokenKind::identifier) {
    unexpected("the name of a section");
  }
  take();
  if (!token_.is('{')) unexpected("'{'");
  lexer_.skip_block(token_.line);
  take();
}

void Parser::parse_directive() {
  if (token_.is_word(".file")) return parse_file();
  if (token_.is_word(".section")) return parse_section();
  if (token_.is_word(".loc")) {
    take();
    return parse_location();
  }
  if (accept_word(".pragma")) {
    expect_kind(TokenKind::string, "a string");
    return expect(';');
  }
  if (token_.is_word(".address_size")) {
    const std::uint32_t line = take().line;
    if (parse_small("an address size", 64) != 64) {
      raise_ptx(line, "only modules with .address_size 64 are supported");
    }
    return;
  }
  if (token_.is_word(".version")) {
    raise_ptx(token_.line, "a second .version: the text holds more than one module");
  }
  if (accept(';')) return;
  Linkage linkage;
  while (true) {
    if (accept_word(".extern")) {
      linkage.is_extern = true;
    } else if (!accept_word(".visible") && !accept_word(".weak") && !accept_word(".common")) {
      break;
    }
  }
  if (token_.is_word(".entry")) return parse_function(true);
  if (token_.is_word(".func")) return parse_function(false);
  if (at_space()) return parse_module_variables(linkage);
  unexpected("a directive, a variable or a function");
}

// Initial values may name what is declared behind them.
void Parser::check_symbols() {
  for (const auto& [name, line] : initializer_symbols_) {
    if (names_.find_declared(name) == nullptr) {
      raise_ptx(line, "unknown name '" + printable(name) + "' in an initial value");
    }
  }
}

}  // namespace kiln::runtime::emulator
