// Declarations of variables: of modules, of bodies.
#include <algorithm>
#include <bit>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/parser.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of one variable, and of a module
constexpr std::uint64_t kMostAlignment = std::uint64_t{1} << 20;
constexpr std::size_t kMostDimensions = 16;

constexpr std::pair<std::string_view, Space> kSpaces[] = {{".global", Space::global},
                                                          {".const", Space::constant},
                                                          {".shared", Space::shared},
                                                          {".local", Space::local},
                                                          {".param", Space::param}};

Space space_of(std::string_view word) {
  for (const auto& [name, space] : kSpaces) {
    if (name == word) return space;
  }
  return Space::none;
}

}  // namespace

bool Parser::at_space() const {
  return token_.kind == TokenKind::word && space_of(token_.text) != Space::none;
}

std::uint32_t Parser::parse_alignment() {
  const std::uint32_t line = token_.line;
  const std::uint32_t align = parse_small("an alignment", kMostAlignment);
  if (!std::has_single_bit(align)) {
    raise_ptx(line, "the alignment " + std::to_string(align) + " is no power of two");
  }
  return align;
}

Type Parser::expect_type(std::string_view what) {
  const Type type = token_.kind == TokenKind::word ? type_of(token_.text.substr(1)) : Type::none;
  if (type == Type::none) unexpected(what);
  take();
  return type;
}

// [2][3]; an empty first extent is 0.
std::vector<std::uint64_t> Parser::parse_extents(std::uint64_t element_bytes) {
  std::vector<std::uint64_t> extents;
  std::uint64_t bytes = element_bytes;
  while (token_.is('[')) {
    const std::uint32_t line = take().line;
    if (extents.size() == kMostDimensions) raise_ptx(line, "more than 16 dimensions");
    if (extents.empty() && accept(']')) {
      extents.push_back(0);
      continue;
    }
    const std::uint64_t extent = parse_constant().bits;
    expect(']');
    if (extent == 0 && !extents.empty()) raise_ptx(line, "an extent of 0");
    if (extent > kMostBytes / bytes) raise_ptx(line, "an array of more than 1 GiB");
    bytes *= std::max<std::uint64_t>(extent, 1);
    extents.push_back(extent);
  }
  return extents;
}

// .attribute(.managed), .attribute(.unified(1, 2)): where memory lives is no matter here.
void Parser::parse_attributes() {
  expect('(');
  for (std::size_t depth = 1; depth > 0;) {
    if (token_.kind == TokenKind::end || token_.is(';')) unexpected("')'");
    const Token token = take();
    depth += token.is('(');
    depth -= token.is(')');
  }
}

// What the variables of one declaration share: .shared .align 16 .v2 .f32
Declaration Parser::parse_declaration(const Linkage& linkage) {
  Declaration declaration;
  declaration.line = token_.line;
  declaration.space = space_of(take().text);
  declaration.is_extern = linkage.is_extern;
  while (true) {
    if (accept_word(".align")) {
      declaration.align = parse_alignment();
    } else if (accept_word(".attribute")) {
      parse_attributes();
    } else if (token_.is_word(".v2") || token_.is_word(".v4") || token_.is_word(".v8")) {
      declaration.lanes = static_cast<std::uint32_t>(take().text[2] - '0');
    } else {
      break;
    }
  }
  if (token_.is_word(".texref") || token_.is_word(".samplerref") || token_.is_word(".surfref")) {
    raise_ptx(token_.line, "textures, samplers and surfaces are not modelled");
  }
  declaration.type = expect_type("the type of a variable");
  if (declaration.type == Type::pred) {
    raise_ptx(declaration.line, "a predicate cannot be in memory");
  }
  return declaration;
}

// One of them: name[2][3] = {...}
Variable Parser::parse_variable(const Declaration& declaration) {
  const Token name = expect_identifier("a variable's name");
  Variable variable;
  variable.name = name.text;
  variable.line = name.line;
  variable.space = declaration.space;
  variable.type = declaration.type;
  variable.is_extern = declaration.is_extern;
  const auto element_bytes = static_cast<std::uint32_t>(bytes_of(variable.type));
  const std::uint32_t natural = element_bytes * declaration.lanes;
  variable.align = declaration.align != 0 ? declaration.align : natural;
  std::vector<std::uint64_t> extents = parse_extents(natural);
  const bool unsized = !extents.empty() && extents[0] == 0;
  if (declaration.lanes > 1) extents.push_back(declaration.lanes);
  variable.bytes = element_bytes;
  for (std::uint64_t extent : extents) variable.bytes *= extent;
  if (accept('=')) {
    if (variable.space != Space::global && variable.space != Space::constant) {
      raise_ptx(name.line, "only .global and .const variables can have initial values");
    }
    parse_initializer(variable, extents, element_bytes);
  } else if (unsized && !variable.is_extern && variable.space != Space::param) {
    raise_ptx(name.line, "the array '" + printable(name.text) +
                             "' has no size; only .extern arrays may have none");
  }
  return variable;
}

// What a module asks for is reserved when it is loaded.
void Parser::count_bytes(const Variable& variable) {
  if (variable.space != Space::global && variable.space != Space::constant) return;
  module_bytes_ += variable.bytes + variable.align;
  if (module_bytes_ > kMostBytes) {
    raise_ptx(variable.line,
              "the .global and .const variables up to here take more than 1 GiB, which is the "
              "emulated device's limit for a module");
  }
}

void Parser::declare_global(Variable&& variable) {
  count_bytes(variable);
  const auto index = static_cast<std::uint32_t>(module_.variables.size());
  const Binding* existing = names_.find_declared(variable.name);
  if (existing == nullptr) {
    names_.declare(variable.name, Binding::Kind::global, index);
    module_.variables.push_back(std::move(variable));
    return;
  }
  // An .extern declaration and the definition may come together, in any order.
  const bool is_variable = existing->kind == Binding::Kind::global;
  if (!is_variable || !(variable.is_extern || module_.variables[existing->index].is_extern)) {
    duplicate(variable.name, variable.line);
  }
  if (!variable.is_extern) module_.variables[existing->index] = std::move(variable);
}

void Parser::parse_module_variables(const Linkage& linkage) {
  const Declaration declaration = parse_declaration(linkage);
  if (declaration.space == Space::param || declaration.space == Space::local) {
    raise_ptx(declaration.line, ".param and .local variables stand in functions only");
  }
  do {
    declare_global(parse_variable(declaration));
  } while (accept(','));
  expect(';');
}

void Parser::parse_body_variables(const Linkage& linkage) {
  const Declaration declaration = parse_declaration(linkage);
  if (declaration.space == Space::global || declaration.space == Space::constant) {
    raise_ptx(declaration.line, ".global and .const variables are supported at module scope only");
  }
  do {
    Variable variable = parse_variable(declaration);
    const auto index = static_cast<std::uint32_t>(function_->variables.size());
    if (names_.declare(variable.name, Binding::Kind::variable, index) == nullptr) {
      duplicate(variable.name, variable.line);
    }
    function_->variables.push_back(std::move(variable));
  } while (accept(','));
  expect(';');
}

}  // namespace kiln::runtime::emulator
