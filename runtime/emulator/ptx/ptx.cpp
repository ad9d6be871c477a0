#include "runtime/emulator/ptx/ptx.h"

#include <algorithm>

#include "runtime/emulator/ptx/parser.h"

namespace kiln::runtime::emulator {

bool Instruction::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

Type Instruction::type() const {
  for (std::size_t i = modifiers.size(); i-- > 0;) {
    const Type type = type_of(modifiers[i]);
    if (type != Type::none) return type;
  }
  return Type::none;
}

std::vector<Type> Instruction::types() const {
  std::vector<Type> types;
  for (std::string_view modifier : modifiers) {
    const Type type = type_of(modifier);
    if (type != Type::none) types.push_back(type);
  }
  return types;
}

std::string Instruction::text() const {
  std::string text(opcode);
  for (std::string_view modifier : modifiers) {
    text += '.';
    text += modifier;
  }
  return text;
}

const Function* Module::find_function(std::string_view name) const {
  const auto found = std::find_if(functions.begin(), functions.end(),
                                  [&](const Function& function) { return function.name == name; });
  return found == functions.end() ? nullptr : &*found;
}

std::string Module::location_text(std::uint32_t location) const {
  const auto place = [this](const SourceLocation& at) {
    const bool named = at.file < files.size() && !files[at.file].empty();
    return (named ? files[at.file] : "file " + std::to_string(at.file)) + ":" +
           std::to_string(at.line);
  };
  if (location == 0 || location >= locations.size()) return {};
  constexpr int kMostCalls = 8;
  std::string text = place(locations[location]);
  std::string calls;
  std::uint32_t at = locations[location].inlined_at;
  for (int i = 0; at != 0 && i < kMostCalls; ++i) {
    calls += (i == 0 ? "inlined at " : ", at ") + place(locations[at]);
    // A call always has a lower index than what was inlined there, which ends the walk.
    at = locations[at].inlined_at;
  }
  if (at != 0) calls += ", ...";
  if (!calls.empty()) text += " (" + calls + ")";
  return text;
}

Module parse_ptx(std::string_view text) {
  // NVRTC's sizes count the terminating zero.
  while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
  Module module;
  module.text = std::make_shared<const std::string>(text);
  Parser(module).parse_module();
  return module;
}

}  // namespace kiln::runtime::emulator
