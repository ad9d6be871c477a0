#include "runtime/emulator/ptx/parser_names.h"

#include <functional>
#include <string>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/ptx/lexer.h"

namespace kiln::runtime::emulator {
namespace {

constexpr std::size_t kFirstSlots = 1024;  // a power of two

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

NameTable::NameTable() : slots_(kFirstSlots, 0) {}

void NameTable::grow() {
  std::vector<std::uint32_t> slots(slots_.size() * 2, 0);
  for (std::uint32_t i = 0; i < names_.size(); ++i) {
    std::size_t at = std::hash<std::string_view>{}(names_[i].text) & (slots.size() - 1);
    while (slots[at] != 0) at = (at + 1) & (slots.size() - 1);
    slots[at] = i + 1;
  }
  slots_ = std::move(slots);
}

std::uint32_t NameTable::intern(std::string_view text) {
  std::size_t at = std::hash<std::string_view>{}(text) & (slots_.size() - 1);
  while (slots_[at] != 0) {
    if (names_[slots_[at] - 1].text == text) return slots_[at] - 1;
    at = (at + 1) & (slots_.size() - 1);
  }
  const auto name = static_cast<std::uint32_t>(names_.size());
  slots_[at] = name + 1;
  names_.push_back({text, -1, -1, -1, 0});
  if (names_.size() * 2 > slots_.size()) grow();
  split(name);
  return name;
}

// %r<10> declares %r0 to %r9: no leading zeros, and no more digits than a range may have.
void NameTable::split(std::uint32_t name) {
  const std::string_view text = names_[name].text;
  constexpr std::size_t kMostDigits = 7;
  std::size_t begin = text.size();
  while (begin > 0 && text.size() - begin <= kMostDigits && is_digit(text[begin - 1])) --begin;
  if (begin == 0 || begin == text.size() || text.size() - begin > kMostDigits) return;
  if (text[begin] == '0' && begin + 1 < text.size()) return;
  std::uint32_t number = 0;
  for (char c : text.substr(begin)) number = number * 10 + static_cast<std::uint32_t>(c - '0');
  const std::uint32_t prefix = intern(text.substr(0, begin));
  names_[name].prefix = static_cast<std::int32_t>(prefix);
  names_[name].number = number;
}

Binding* NameTable::push(std::uint32_t name, Binding::Kind kind) {
  Name& entry = names_[name];
  std::int32_t& top = kind == Binding::Kind::range ? entry.range : entry.binding;
  const auto depth = static_cast<std::uint32_t>(marks_.size());
  if (top >= 0 && bindings_[static_cast<std::size_t>(top)].depth == depth) return nullptr;
  Binding binding;
  binding.kind = kind;
  binding.depth = depth;
  binding.name = name;
  binding.shadowed = top;
  top = static_cast<std::int32_t>(bindings_.size());
  bindings_.push_back(binding);
  return &bindings_.back();
}

void NameTable::leave() {
  while (bindings_.size() > marks_.back()) {
    const Binding& binding = bindings_.back();
    Name& entry = names_[binding.name];
    (binding.kind == Binding::Kind::range ? entry.range : entry.binding) = binding.shadowed;
    bindings_.pop_back();
  }
  marks_.pop_back();
  // Not clear(): that costs what the largest function so far has cost.
  if (marks_.empty()) members_ = {};
}

Binding* NameTable::declare(std::string_view name, Binding::Kind kind, std::uint32_t index) {
  Binding* binding = push(intern(name), kind);
  if (binding != nullptr) binding->index = index;
  return binding;
}

Binding* NameTable::declare_range(std::string_view prefix, Type type, std::uint32_t count) {
  Binding* binding = push(intern(prefix), Binding::Kind::range);
  if (binding == nullptr) return nullptr;
  binding->type = type;
  binding->count = count;
  binding->index = next_range_++;
  return binding;
}

Binding* NameTable::find_declared(std::string_view name) {
  const std::int32_t binding = names_[intern(name)].binding;
  return binding < 0 ? nullptr : &bindings_[static_cast<std::size_t>(binding)];
}

const Binding* NameTable::find(std::string_view name, std::vector<Register>& registers) {
  const Name& entry = names_[intern(name)];
  const Binding* exact =
      entry.binding < 0 ? nullptr : &bindings_[static_cast<std::size_t>(entry.binding)];
  if (entry.prefix < 0) return exact;
  const std::int32_t range = names_[static_cast<std::size_t>(entry.prefix)].range;
  if (range < 0) return exact;
  const Binding& family = bindings_[static_cast<std::size_t>(range)];
  if (entry.number >= family.count) return exact;
  if (exact != nullptr && exact->depth >= family.depth) return exact;
  const std::uint64_t key = std::uint64_t{family.index} << 32 | entry.number;
  const auto [member, added] =
      members_.try_emplace(key, static_cast<std::uint32_t>(registers.size()));
  if (added) registers.push_back({name, family.type});
  member_.kind = Binding::Kind::reg;
  member_.type = family.type;
  member_.index = member->second;
  return &member_;
}

void LabelTable::enter() {
  const auto scope = static_cast<std::uint32_t>(scopes_.size());
  scopes_.push_back(-1);
  stack_.push_back(scope);
  events_.push_back({Event::Kind::enter, scope, 0, 0, {}});
}

void LabelTable::leave() {
  events_.push_back({Event::Kind::leave, stack_.back(), 0, 0, {}});
  stack_.pop_back();
}

void LabelTable::define(std::string_view name, Kind kind, std::uint32_t value, std::uint32_t line) {
  std::int32_t& first = scopes_[stack_.back()];
  definitions_.push_back({name, kind, value, line, stack_.back(), first, -1});
  first = static_cast<std::int32_t>(definitions_.size()) - 1;
}

void LabelTable::use(std::string_view name, std::uint32_t line, std::uint32_t instruction,
                     std::uint32_t operand) {
  events_.push_back({Event::Kind::use, line, instruction, operand, name});
}

void LabelTable::use_in_list(std::string_view name, std::uint32_t line, std::uint32_t list,
                             std::uint32_t entry) {
  events_.push_back({Event::Kind::use_in_list, line, list, entry, name});
}

void LabelTable::open(std::uint32_t scope) {
  for (std::int32_t i = scopes_[scope]; i >= 0;) {
    Definition& definition = definitions_[static_cast<std::size_t>(i)];
    const auto [entry, added] = visible_.try_emplace(definition.name, -1);
    definition.shadowed = entry->second;
    if (definition.shadowed >= 0 &&
        definitions_[static_cast<std::size_t>(definition.shadowed)].scope == scope) {
      const Definition& later = definitions_[static_cast<std::size_t>(definition.shadowed)];
      raise_ptx(later.line, "the label '" + printable(later.name) +
                                "' is defined twice in its scope, first in line " +
                                std::to_string(definition.line));
    }
    entry->second = i;
    i = definition.next;
  }
}

void LabelTable::close(std::uint32_t scope) {
  for (std::int32_t i = scopes_[scope]; i >= 0;) {
    const Definition& definition = definitions_[static_cast<std::size_t>(i)];
    visible_[definition.name] = definition.shadowed;
    i = definition.next;
  }
}

void LabelTable::bind(const Event& event, Function& function) const {
  const auto found = visible_.find(event.name);
  if (found == visible_.end() || found->second < 0) {
    raise_ptx(event.scope, "unknown name '" + printable(event.name) + "': no label of this scope");
  }
  const Definition& definition = definitions_[static_cast<std::size_t>(found->second)];
  if (event.kind == Event::Kind::use_in_list) {
    if (definition.kind != Kind::code) {
      raise_ptx(event.scope,
                "expected a label of code in .branchtargets, got '" + printable(event.name) + "'");
    }
    function.branch_targets[event.where][event.index] = definition.value;
    return;
  }
  const Instruction& instruction = function.body[event.where];
  const Kind expected = instruction.opcode == "brx"    ? Kind::targets
                        : instruction.opcode == "call" ? Kind::prototype
                                                       : Kind::code;
  if (definition.kind != expected) {
    raise_ptx(event.scope, "'" + printable(event.name) + "' is not what " +
                               std::string(instruction.opcode) + " can name here");
  }
  Operand& operand = function.body[event.where].operands[event.index];
  operand.kind = expected == Kind::prototype ? Operand::Kind::symbol : Operand::Kind::label;
  operand.value = definition.value;
}

void LabelTable::resolve(Function& function) {
  for (const Event& event : events_) {
    switch (event.kind) {
      case Event::Kind::enter:
        open(event.scope);
        break;
      case Event::Kind::leave:
        close(event.scope);
        break;
      case Event::Kind::use:
      case Event::Kind::use_in_list:
        bind(event, function);
        break;
    }
  }
}

}  // namespace kiln::runtime::emulator
