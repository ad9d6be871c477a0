// Bodies of functions: statements, registers, labels, source locations.
#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/parser.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::size_t kDeepestScope = 1000;
constexpr std::uint64_t kMostRegisters = 1'000'000;  // of one range, and of a function
// The key of locations_ packs them: 16 bits of file, 28 of line, 20 of column.
constexpr std::uint64_t kMostFiles = (1u << 16) - 1;
constexpr std::uint64_t kMostLines = (1u << 28) - 1;
constexpr std::uint64_t kMostColumns = (1u << 20) - 1;

std::uint64_t location_key(std::uint32_t file, std::uint32_t line, std::uint32_t column) {
  return std::uint64_t{file} << 48 | std::uint64_t{line} << 20 | column;
}

}  // namespace

// Scopes are counted, not recursed into: the current token is the body's opening brace.
void Parser::parse_body(Function& function) {
  const std::uint32_t opening_line = token_.line;
  expect('{');
  function_ = &function;
  function.has_body = true;
  labels_ = LabelTable();
  location_ = 0;
  const std::size_t outside = names_.depth();
  names_.enter();
  labels_.enter();
  while (names_.depth() > outside) {
    if (token_.is('}')) {
      names_.leave();
      labels_.leave();
      take();
    } else if (token_.is('{')) {
      if (names_.depth() > kDeepestScope) raise_ptx(token_.line, "more than 1000 nested scopes");
      names_.enter();
      labels_.enter();
      take();
    } else if (token_.kind == TokenKind::end) {
      raise_ptx(token_.line, "the text ends inside of '" + printable(function.name) +
                                 "', whose body begins in line " + std::to_string(opening_line));
    } else {
      parse_statement();
    }
  }
  labels_.resolve(function);
  function_ = nullptr;
}

void Parser::parse_statement() {
  if (token_.kind == TokenKind::word) {
    if (!parse_body_directive()) unexpected("a statement");
    return;
  }
  if (token_.is('@')) {
    parse_guard();
    return;
  }
  if (accept(';')) return;
  if (token_.kind != TokenKind::identifier) unexpected("a statement");
  const Token name = take();
  if (accept(':')) {
    parse_labelled(name);
  } else {
    parse_instruction(name, -1, false);
  }
}

bool Parser::parse_body_directive() {
  if (accept_word(".loc")) {
    parse_location();
  } else if (accept_word(".reg")) {
    parse_registers();
  } else if (accept_word(".pragma")) {
    do {
      expect_kind(TokenKind::string, "a string");
    } while (accept(','));
    expect(';');
  } else if (token_.is_word(".file")) {
    parse_file();
  } else if (token_.is_word(".section")) {
    parse_section();
  } else if (at_space() || token_.is_word(".extern")) {
    Linkage linkage;
    linkage.is_extern = accept_word(".extern");
    if (!at_space()) unexpected("a state space");
    parse_body_variables(linkage);
  } else {
    return false;
  }
  return true;
}

// .reg .b32 %r<100>, %other;
void Parser::parse_registers() {
  const Type type = expect_type("the type of registers");
  do {
    const Token name = expect_identifier("a register's name");
    bool fresh = true;
    if (accept('<')) {
      const std::uint32_t count = parse_small("the number of registers", kMostRegisters);
      expect('>');
      const char last = name.text.back();
      if (last >= '0' && last <= '9') {
        raise_ptx(name.line, "a range of registers whose prefix '" + printable(name.text) +
                                 "' ends in a digit is not supported");
      }
      fresh = names_.declare_range(name.text, type, count) != nullptr;
    } else {
      const auto index = static_cast<std::uint32_t>(function_->registers.size());
      Binding* binding = names_.declare(name.text, Binding::Kind::reg, index);
      fresh = binding != nullptr;
      if (fresh) {
        binding->type = type;
        function_->registers.push_back({name.text, type});
      }
    }
    if (!fresh) duplicate(name.text, name.line);
    check_registers(name.line);
  } while (accept(','));
  expect(';');
}

void Parser::check_registers(std::uint32_t line) const {
  if (function_->registers.size() <= kMostRegisters) return;
  raise_ptx(line, "the function '" + printable(function_->name) +
                      "' has more than 1000000 registers, which is the emulated device's limit");
}

std::uint32_t Parser::add_location(std::uint32_t file, std::uint32_t line, std::uint32_t column,
                                   std::uint32_t inlined_at) {
  const auto next = static_cast<std::uint32_t>(module_.locations.size());
  const auto [entry, added] = locations_.try_emplace(location_key(file, line, column), next);
  if (!added && module_.locations[entry->second].inlined_at == inlined_at) return entry->second;
  module_.locations.push_back({file, line, inlined_at});
  entry->second = next;
  return next;
}

// .loc 1 30 5, function_name $L__info_string0, inlined_at 1 40 3
void Parser::parse_location() {
  const auto triple = [this](std::uint32_t (&position)[3]) {
    position[0] = parse_small("a file's number", kMostFiles);
    position[1] = parse_small("a line", kMostLines);
    position[2] = parse_small("a column", kMostColumns);
  };
  std::uint32_t here[3], call[3];
  triple(here);
  std::uint32_t inlined_at = 0;
  while (accept(',')) {
    const Token attribute = expect_identifier("function_name or inlined_at");
    if (attribute.text == "function_name") {
      if (!accept_word(".debug_str")) expect_identifier("the label of a name");
      if (token_.is('+') || token_.is('-')) parse_displacement();
    } else if (attribute.text == "inlined_at") {
      triple(call);
      // The call stands at a place that an earlier .loc has named, which may be inlined itself.
      const auto known = locations_.find(location_key(call[0], call[1], call[2]));
      inlined_at =
          known != locations_.end() ? known->second : add_location(call[0], call[1], call[2], 0);
    } else {
      raise_ptx(attribute.line, "expected function_name or inlined_at, got " + describe(attribute));
    }
  }
  // Line 0: code that no line of the source asked for; the line before it says more.
  if (here[1] == 0 && location_ != 0) return;
  location_ = add_location(here[0], here[1], here[2], inlined_at);
}

// The current token is the one behind "name:".
void Parser::parse_labelled(const Token& name) {
  if (accept_word(".branchtargets")) {
    const auto list = static_cast<std::uint32_t>(function_->branch_targets.size());
    labels_.define(name.text, LabelTable::Kind::targets, list, name.line);
    function_->branch_targets.emplace_back();
    std::vector<std::uint32_t>& targets = function_->branch_targets.back();
    do {
      const Token label = expect_identifier("a label");
      labels_.use_in_list(label.text, label.line, list, static_cast<std::uint32_t>(targets.size()));
      targets.push_back(0);
    } while (accept(','));
    expect(';');
  } else if (token_.is_word(".callprototype") || token_.is_word(".calltargets")) {
    labels_.define(name.text, LabelTable::Kind::prototype, 0, name.line);
    parse_prototype();
  } else {
    labels_.define(name.text, LabelTable::Kind::code,
                   static_cast<std::uint32_t>(function_->body.size()), name.line);
  }
}

// What an indirect call may call follows from the function that it does call, so the prototype's
// contents mean nothing here.
void Parser::parse_prototype() {
  take();
  while (!token_.is(';')) {
    if (token_.kind == TokenKind::end || token_.is('{') || token_.is('}')) {
      unexpected("the ';' of a prototype");
    }
    take();
  }
  take();
}

void Parser::parse_guard() {
  expect('@');
  const bool negated = accept('!');
  const Token name = expect_identifier("the predicate of a guard");
  const Binding* binding = names_.find(name.text, function_->registers);
  if (binding == nullptr) raise_ptx(name.line, "unknown register '" + printable(name.text) + "'");
  if (binding->kind != Binding::Kind::reg || binding->type != Type::pred) {
    raise_ptx(name.line, "the guard '" + printable(name.text) + "' is not a predicate");
  }
  const auto guard = static_cast<std::int32_t>(binding->index);
  const Token opcode = expect_identifier("an instruction");
  parse_instruction(opcode, guard, negated);
}

void Parser::parse_instruction(const Token& opcode, std::int32_t guard, bool negated) {
  Instruction instruction;
  instruction.opcode = opcode_ = opcode.text;
  instruction.guard = guard;
  instruction.guard_negated = negated;
  instruction.line = opcode.line;
  instruction.location = location_;
  instruction.modifiers.reserve(4);
  while (token_.kind == TokenKind::word) instruction.modifiers.push_back(take().text.substr(1));
  if (!token_.is(';')) {
    instruction.operands.reserve(4);
    do {
      operand_index_ = static_cast<std::uint32_t>(instruction.operands.size());
      instruction.operands.push_back(parse_operand(false));
    } while (accept(','));
  }
  if (!accept(';')) unexpected("',' or ';'");
  check_registers(opcode.line);
  function_->body.push_back(std::move(instruction));
}

}  // namespace kiln::runtime::emulator
