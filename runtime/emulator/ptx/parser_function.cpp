// Kernels and functions: parameters, performance directives.
#include <algorithm>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/parser.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint64_t kMostCount = 0xffffffffu;

}  // namespace

Parameter Parser::parse_parameter(bool is_entry) {
  const bool in_register = !is_entry && accept_word(".reg");
  if (!in_register && !accept_word(".param")) unexpected("a parameter");
  Parameter parameter;
  std::uint32_t align = 0;
  if (accept_word(".align")) align = parse_alignment();
  const std::uint32_t line = token_.line;
  parameter.type = expect_type("the type of a parameter");
  if (parameter.type == Type::pred && !in_register) {
    raise_ptx(line, "a predicate cannot be in memory");
  }
  // .ptr, its space and its alignment tell of what the pointer points to.
  if (accept_word(".ptr")) {
    while (at_space() || token_.is_word(".generic")) take();
    if (accept_word(".align")) parse_alignment();
  }
  const Token name = expect_identifier("a parameter's name");
  parameter.name = name.text;
  parameter.bytes = static_cast<std::uint64_t>(bytes_of(parameter.type));
  parameter.align =
      align != 0 ? align : std::max<std::uint32_t>(1, static_cast<std::uint32_t>(parameter.bytes));
  if (!in_register) {
    for (std::uint64_t extent : parse_extents(parameter.bytes)) parameter.bytes *= extent;
  }
  parameter.in_register = in_register;
  return parameter;
}

void Parser::declare_parameters(Function& function, std::vector<Parameter>& list) {
  for (Parameter& parameter : list) {
    if (parameter.name == "_") continue;
    Binding* binding = nullptr;
    if (parameter.in_register) {
      parameter.reg = static_cast<std::uint32_t>(function.registers.size());
      function.registers.push_back({parameter.name, parameter.type});
      binding = names_.declare(parameter.name, Binding::Kind::reg, parameter.reg);
    } else {
      binding = names_.declare(parameter.name, Binding::Kind::parameter, 0);
    }
    if (binding == nullptr) duplicate(parameter.name, function.line);
    binding->type = parameter.type;
  }
}

std::uint64_t Parser::parse_parameters(std::vector<Parameter>& list, bool is_entry) {
  expect('(');
  if (accept(')')) return 0;
  std::uint64_t end = 0;
  do {
    Parameter parameter = parse_parameter(is_entry);
    parameter.offset = (end + parameter.align - 1) / parameter.align * parameter.align;
    end = parameter.offset + parameter.bytes;
    list.push_back(parameter);
  } while (accept(','));
  expect(')');
  return end;
}

void Parser::parse_dimensions(std::uint32_t (&dimensions)[3]) {
  std::fill(std::begin(dimensions), std::end(dimensions), 1u);
  std::size_t i = 0;
  do {
    if (i == 3) raise_ptx(token_.line, "more than three dimensions");
    dimensions[i++] = parse_small("a number of threads or blocks", kMostCount);
  } while (accept(','));
}

bool Parser::parse_performance(Function& function) {
  if (accept_word(".maxntid")) {
    parse_dimensions(function.max_threads);
  } else if (accept_word(".reqntid")) {
    parse_dimensions(function.required_threads);
  } else if (accept_word(".reqnctapercluster")) {
    parse_dimensions(function.required_cluster);
  } else if (accept_word(".maxnreg")) {
    function.max_registers = parse_small("a number of registers", kMostCount);
  } else if (accept_word(".minnctapersm") || accept_word(".maxnctapersm")) {
    function.min_blocks = parse_small("a number of blocks", kMostCount);
  } else if (accept_word(".maxclusterrank") || accept_word(".abi_preserve") ||
             accept_word(".abi_preserve_control")) {
    parse_small("a count", kMostCount);
  } else if (accept_word(".explicitcluster") || accept_word(".blocksareclusters") ||
             accept_word(".noreturn")) {
    // Nothing that a launch could be checked against.
  } else if (accept_word(".pragma")) {
    expect_kind(TokenKind::string, "a string");
    expect(';');
  } else {
    return false;
  }
  return true;
}

// The place in Module::functions of what may have been declared before.
std::uint32_t Parser::declare_function(const Token& name, bool has_body) {
  const Binding* existing = names_.find_declared(name.text);
  if (existing == nullptr) {
    const auto index = static_cast<std::uint32_t>(module_.functions.size());
    names_.declare(name.text, Binding::Kind::function, index);
    module_.functions.emplace_back();
    return index;
  }
  if (existing->kind != Binding::Kind::function ||
      (has_body && module_.functions[existing->index].has_body)) {
    duplicate(name.text, name.line);
  }
  return existing->index;
}

void Parser::parse_function(bool is_entry) {
  take();
  Function function;
  function.is_entry = is_entry;
  while (!is_entry && accept_word(".attribute")) parse_attributes();
  if (!is_entry && token_.is('(')) parse_parameters(function.results, is_entry);
  const Token name = expect_identifier("the name of a function");
  function.name = name.text;
  function.line = name.line;
  if (token_.is('(')) function.parameter_bytes = parse_parameters(function.parameters, is_entry);
  while (parse_performance(function)) {
  }
  const bool has_body = token_.is('{');
  if (!has_body && !token_.is(';')) unexpected("'{' or ';'");
  const std::uint32_t index = declare_function(name, has_body);
  if (has_body) {
    names_.enter();
    declare_parameters(function, function.results);
    declare_parameters(function, function.parameters);
    parse_body(function);
    names_.leave();
  } else {
    take();
  }
  if (has_body || !module_.functions[index].has_body)
    module_.functions[index] = std::move(function);
}

}  // namespace kiln::runtime::emulator
