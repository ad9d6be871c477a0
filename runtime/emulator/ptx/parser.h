// The parser of PTX modules: one token of look-ahead, one pass, labels resolved at a function's
// end. Private to runtime/emulator/parser_*.cpp and ptx.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/emulator/machine/polling.h"
#include "runtime/emulator/ptx/lexer.h"
#include "runtime/emulator/ptx/parser_names.h"
#include "runtime/emulator/ptx/ptx.h"

namespace kiln::runtime::emulator {

// The value of a constant expression: 64 bits, signed unless a literal needs or says otherwise.
struct Constant {
  std::uint64_t bits = 0;
  bool is_unsigned = false;
};

// What stands before a variable's or a function's declaration.
struct Linkage {
  bool is_extern = false;
};

// What the variables of one declaration have in common.
struct Declaration {
  Space space = Space::none;
  Type type = Type::none;
  std::uint32_t align = 0;  // 0 = the natural one
  std::uint32_t lanes = 1;  // .v2, .v4
  bool is_extern = false;
  std::uint32_t line = 0;
};

// One element of an initialiser.
struct Initializer {
  enum class Kind : std::uint8_t { integer, real, symbol };
  Kind kind = Kind::integer;
  std::uint64_t value = 0;  // a symbol's offset, a real's bits
  Type type = Type::none;   // of a real: f32 or f64
  std::uint64_t mask = 0;   // of a symbol: 0xFF00(name); 0 = the whole address
  bool generic = false;
  std::string_view name;
  std::uint32_t line = 0;
};

class Parser {
 public:
  explicit Parser(Module& module);
  void parse_module();

 private:
  // parser_module.cpp
  void parse_directive();
  void parse_file();
  void parse_section();
  void parse_version();
  void parse_target();
  void check_symbols();
  std::uint32_t parse_small(std::string_view what, std::uint64_t most);

  // parser_function.cpp
  void parse_function(bool is_entry);
  std::uint32_t declare_function(const Token& name, bool has_body);
  std::uint64_t parse_parameters(std::vector<Parameter>& list, bool is_entry);
  Parameter parse_parameter(bool is_entry);
  void declare_parameters(Function& function, std::vector<Parameter>& list);
  bool parse_performance(Function& function);
  void parse_dimensions(std::uint32_t (&dimensions)[3]);

  // parser_variable.cpp
  bool at_space() const;
  Declaration parse_declaration(const Linkage& linkage);
  Variable parse_variable(const Declaration& declaration);
  void declare_global(Variable&& variable);
  void count_bytes(const Variable& variable);
  void parse_module_variables(const Linkage& linkage);
  void parse_body_variables(const Linkage& linkage);
  void parse_attributes();
  std::uint32_t parse_alignment();
  Type expect_type(std::string_view what);
  std::vector<std::uint64_t> parse_extents(std::uint64_t element_bytes);

  // parser_initializer.cpp
  void parse_initializer(Variable& variable, const std::vector<std::uint64_t>& extents,
                         std::uint64_t element_bytes);
  std::uint64_t fill(Variable& variable, const std::vector<std::uint64_t>& strides,
                     std::size_t level, std::uint64_t begin);
  void store(Variable& variable, const Initializer& element, std::uint64_t at);
  void store_masked(Variable& variable, const Initializer& element, std::uint64_t at);
  void reserve(Variable& variable, std::uint64_t bytes);
  Initializer parse_element();
  void parse_element_symbol(Initializer& element);

  // parser_body.cpp
  void parse_body(Function& function);
  void parse_statement();
  bool parse_body_directive();
  void parse_registers();
  void check_registers(std::uint32_t line) const;
  void parse_location();
  void parse_labelled(const Token& name);
  void parse_prototype();
  void parse_instruction(const Token& opcode, std::int32_t guard, bool negated);
  void parse_guard();
  std::uint32_t add_location(std::uint32_t file, std::uint32_t line, std::uint32_t column,
                             std::uint32_t inlined_at);

  // parser_operand.cpp
  Operand parse_operand(bool nested);
  Operand parse_named(bool nested);
  Operand parse_address();
  Operand parse_list(char close, Operand::Kind kind, bool empty_allowed);
  Operand parse_number(bool negated);
  bool resolve(const Token& name, Operand& operand);
  void read_special(const Token& name, Operand& operand);
  std::int64_t parse_displacement();

  // parser_constant.cpp
  Constant parse_constant() { return parse_ternary(0); }
  Constant parse_ternary(int depth);
  Constant parse_binary(int least, int depth);
  Constant parse_unary(int depth);
  Constant parse_primary(int depth);
  std::string_view binary_operator() const;
  std::int64_t parse_integer() { return static_cast<std::int64_t>(parse_constant().bits); }
  // The bits of the current token: of an f32 or an f64, or of a decimal (Type::none) as an f64.
  std::uint64_t parse_real(Type* type);

  // Tokens.
  void advance();
  Token take();
  Token peek() const { return Lexer(lexer_).next(); }
  bool accept(char symbol);
  bool accept_word(std::string_view word);
  void expect(char symbol);
  Token expect_identifier(std::string_view what);
  Token expect_kind(TokenKind kind, std::string_view what);
  [[noreturn]] void unexpected(std::string_view expected) const;
  [[noreturn]] static void duplicate(std::string_view name, std::uint32_t line);

  Module& module_;
  Lexer lexer_;
  Token token_;  // the current one
  NameTable names_;
  LabelTable labels_;
  Function* function_ = nullptr;  // whose body is being read
  std::string_view opcode_;       // of the instruction being read
  std::uint32_t operand_index_ = 0;
  std::uint32_t location_ = 0;
  // File, line and column -> the last of Module::locations with them.
  std::unordered_map<std::uint64_t, std::uint32_t> locations_;
  std::vector<std::pair<std::string_view, std::uint32_t>> initializer_symbols_;  // with lines
  std::uint64_t initial_bytes_ = 0;
  std::uint64_t module_bytes_ = 0;  // of .global and .const variables, with their alignment
  Ticker ticker_;
  // A run of masked parts of one address: what has come of it so far.
  Initializer masked_;
  std::uint64_t masked_at_ = 0;
  std::uint64_t masked_parts_ = 0;
};

}  // namespace kiln::runtime::emulator
