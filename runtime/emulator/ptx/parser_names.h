// What a name means where it stands: nested scopes with shadowing, register ranges, labels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/emulator/ptx/ptx.h"

namespace kiln::runtime::emulator {

struct Binding {
  enum class Kind : std::uint8_t {
    reg,        // index: of Function::registers
    range,      // the prefix of %r<count>
    variable,   // index: of Function::variables
    parameter,  // of the function, or one of its results
    global,     // index: of Module::variables
    function    // index: of Module::functions
  };
  Kind kind = Kind::reg;
  Type type = Type::none;
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  // The rest is the table's own.
  std::uint32_t scope = 0;
  std::uint32_t depth = 0;
  std::uint32_t name = 0;
  std::int32_t shadowed = -1;
};

// A hash table of names whose meanings are a stack: leaving a scope undoes what it declared, so
// that every look-up costs the same however deep the nesting is.
class NameTable {
 public:
  NameTable();

  void enter() { marks_.push_back(bindings_.size()); }
  void leave();
  std::size_t depth() const { return marks_.size(); }

  // nullptr where this scope has that name already (`existing` says with what meaning).
  Binding* declare(std::string_view name, Binding::Kind kind, std::uint32_t index);
  Binding* declare_range(std::string_view prefix, Type type, std::uint32_t count);
  // The innermost meaning; a member of a range becomes a register of `registers` when it is first
  // named, so that registers nobody uses cost nothing.
  const Binding* find(std::string_view name, std::vector<Register>& registers);
  Binding* find_declared(std::string_view name);

 private:
  struct Name {
    std::string_view text;
    std::int32_t binding = -1;  // the innermost one; bindings_ is the undo log, too
    std::int32_t range = -1;
    std::int32_t prefix = -1;  // the name without its digits, where it may be a range's member
    std::uint32_t number = 0;
  };
  std::uint32_t intern(std::string_view text);
  void split(std::uint32_t name);
  void grow();
  Binding* push(std::uint32_t name, Binding::Kind kind);

  std::vector<Name> names_;
  std::vector<std::uint32_t> slots_;  // index of names_ plus one; 0 = free
  std::vector<Binding> bindings_;
  std::vector<std::size_t> marks_;
  std::uint32_t next_range_ = 0;
  Binding member_;                                            // what find() returns for ranges
  std::unordered_map<std::uint64_t, std::uint32_t> members_;  // range and number -> register
};

// The labels of one function. They are visible in their whole scope, before they stand, too, so
// uses are resolved when the function is complete.
class LabelTable {
 public:
  enum class Kind : std::uint8_t { code, targets, prototype };

  void enter();
  void leave();
  void define(std::string_view name, Kind kind, std::uint32_t value, std::uint32_t line);
  // A use by operand `operand` of instruction `instruction` …
  void use(std::string_view name, std::uint32_t line, std::uint32_t instruction,
           std::uint32_t operand);
  // … or by entry `entry` of the list `list` of .branchtargets.
  void use_in_list(std::string_view name, std::uint32_t line, std::uint32_t list,
                   std::uint32_t entry);
  void resolve(Function& function);

 private:
  struct Definition {
    std::string_view name;
    Kind kind = Kind::code;
    std::uint32_t value = 0, line = 0;
    std::uint32_t scope = 0;
    std::int32_t next = -1;  // of the same scope
    std::int32_t shadowed = -1;
  };
  struct Event {
    enum class Kind : std::uint8_t { enter, leave, use, use_in_list };
    Kind kind = Kind::enter;
    std::uint32_t scope = 0;  // or the line of a use
    std::uint32_t where = 0, index = 0;
    std::string_view name;
  };
  void open(std::uint32_t scope);
  void close(std::uint32_t scope);
  void bind(const Event& event, Function& function) const;

  std::vector<Definition> definitions_;
  std::vector<std::int32_t> scopes_;  // the first definition of each
  std::vector<std::uint32_t> stack_;
  std::vector<Event> events_;
  std::unordered_map<std::string_view, std::int32_t> visible_;
};

}  // namespace kiln::runtime::emulator
