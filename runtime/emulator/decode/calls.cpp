#include "runtime/emulator/decode/calls.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "runtime/emulator/machine/faults.h"
#include "runtime/emulator/machine/polling.h"

namespace kiln::runtime::emulator {
namespace {

using Kind = Operand::Kind;

// Calls within calls multiply: in instructions, in registers, and in calls of functions that do
// nothing but call. Each call that is put in place is a frame of the host's stack.
constexpr std::size_t kMostInstructions = std::size_t{1} << 20;
constexpr std::size_t kMostRegisters = std::size_t{1} << 20;
constexpr std::size_t kMostCalls = std::size_t{1} << 16;
constexpr std::size_t kDeepestCall = 128;

class Flattener {
 public:
  Flattener(const Module& module, const Function& entry) : module_(module), entry_(entry) {}

  std::shared_ptr<const FlatFunction> run() {
    out_ = entry_;
    out_.registers.clear();
    out_.body.clear();
    out_.branch_targets.clear();
    splice({entry_, {}, 0, 0, variables_of(entry_)});
    out_.variables = std::move(variables_);
    flat_->function = std::move(out_);
    return flat_;
  }

 private:
  // One call: where the callee's registers, branch tables and variables are in the flat function.
  struct Frame {
    const Function& function;
    std::unordered_map<std::string_view, std::uint32_t> parameters;  // to flat variables
    std::uint32_t registers, tables;
    std::uint32_t variables;
  };

  [[noreturn]] void refuse(const Instruction& call, const std::string& message) const {
    Site site;
    site.kernel = std::string(entry_.name);
    site.ptx_line = call.line;
    site.instruction = call.text();
    site.source = module_.location_text(call.location);
    throw EmulatorError(Fault::unknown_instruction, message, site);
  }

  // Places a function's variables, once: lanes have local memory of their own, shared memory is
  // meant to be one, and nobody calls itself. Parameters of calls are local memory, too.
  std::uint32_t variables_of(const Function& function) {
    const auto next = static_cast<std::uint32_t>(variables_.size());
    const auto [at, is_new] = placed_.try_emplace(&function, next);
    if (!is_new) return at->second;
    for (const Variable& variable : function.variables) {
      variables_.push_back(variable);
      was_parameter_.push_back(variable.space == Space::param);
      Variable& copy = variables_.back();
      if (&function == &entry_ && variable.space != Space::param) continue;
      // Scopes repeat names; no name of PTX has a colon.
      flat_->names.push_back(std::string(function.name) + ":" + std::string(variable.name) + ":" +
                             std::to_string(variables_.size()));
      copy.name = flat_->names.back();
      if (copy.space == Space::param) copy.space = Space::local;
    }
    return next;
  }

  // Whether the symbol is a parameter of a call, which now is local memory.
  bool rename_symbol(const Frame& frame, Operand& operand) const {
    std::uint32_t index = frame.variables + operand.reg;
    if (operand.reg == kNotOfBody) {
      const auto found = frame.parameters.find(operand.name);
      if (found == frame.parameters.end()) return false;
      index = found->second;
    }
    const Variable& variable = variables_[index];
    operand.reg = index;
    operand.name = variable.name;
    return was_parameter_[index];
  }

  bool rename(const Frame& frame, Operand& operand) const {
    bool parameter = false;
    if (operand.is(Kind::reg)) operand.reg += frame.registers;
    if (operand.is(Kind::symbol)) parameter = rename_symbol(frame, operand);
    for (Operand& item : operand.items) parameter = rename(frame, item) || parameter;
    return parameter;
  }

  void append(const Frame& frame, Instruction instruction) {
    if (instruction.guard >= 0) instruction.guard += static_cast<std::int32_t>(frame.registers);
    bool parameter = false;
    for (Operand& operand : instruction.operands) parameter |= rename(frame, operand);
    const bool callee = &frame.function != &entry_;
    for (std::string_view& modifier : instruction.modifiers) {
      if (modifier != "param" && modifier != "param::func") continue;
      if (parameter) {
        modifier = "local";
      } else if (callee) {
        refuse(instruction,
               "the emulator does not model parameters of functions that are reached "
               "through a register");
      }
    }
    out_.body.push_back(std::move(instruction));
  }

  static Instruction branch_like(const Instruction& from) {
    Instruction branch;
    branch.opcode = "bra";
    branch.line = from.line;
    branch.location = from.location;
    branch.guard = from.guard;
    branch.guard_negated = from.guard_negated;
    Operand target;
    target.kind = Kind::label;
    branch.operands.push_back(target);
    return branch;
  }

  std::int64_t here() const { return static_cast<std::int64_t>(out_.body.size()); }

  void check_size(const Instruction& instruction) const {
    const auto exceeds = [&](std::size_t count, std::size_t most, const std::string& what) {
      if (count <= most) return;
      refuse(instruction,
             "with the functions that it calls in their places, this kernel has more "
             "than " +
                 std::to_string(most) + " " + what + ", which is the emulated device's limit");
    };
    exceeds(out_.body.size(), kMostInstructions, "instructions");
    exceeds(out_.registers.size(), kMostRegisters, "registers");
    exceeds(calls_, kMostCalls, "calls");
    exceeds(calling_.size(), kDeepestCall, "calls within each other");
  }

  void splice(const Frame& frame) {
    const Function& function = frame.function;
    const std::vector<Register>& registers = function.registers;
    out_.registers.insert(out_.registers.end(), registers.begin(), registers.end());
    out_.branch_targets.resize(frame.tables + function.branch_targets.size());
    calling_.push_back(&function);
    std::vector<std::int64_t> position;         // in the flat body
    std::vector<std::size_t> labelled, leaves;  // indices there: of instructions to be patched
    for (const Instruction& instruction : function.body) {
      ticker_.tick();
      check_size(instruction);
      position.push_back(here());
      if (instruction.opcode == "call") {
        call(frame, instruction);
      } else if (instruction.opcode == "ret" && &function != &entry_) {
        leaves.push_back(out_.body.size());
        append(frame, branch_like(instruction));
      } else {
        labelled.push_back(out_.body.size());
        append(frame, instruction);
      }
    }
    position.push_back(here());
    for (std::size_t at : leaves) out_.body[at].operands[0].value = here();
    for (std::size_t at : labelled) patch(frame, position, out_.body[at]);
    for (std::size_t i = 0; i < function.branch_targets.size(); ++i) {
      for (std::uint32_t target : function.branch_targets[i]) {
        out_.branch_targets[frame.tables + i].push_back(
            static_cast<std::uint32_t>(position[target]));
      }
    }
    calling_.pop_back();
  }

  static void patch(const Frame& frame, const std::vector<std::int64_t>& position,
                    Instruction& instruction) {
    for (Operand& operand : instruction.operands) {
      if (!operand.is(Kind::label)) continue;
      operand.value = instruction.opcode == "brx"
                          ? operand.value + frame.tables
                          : position[static_cast<std::size_t>(operand.value)];
    }
  }

  // call (results), name, (arguments): results and arguments may be absent.
  void call(const Frame& frame, const Instruction& instruction) {
    const std::vector<Operand>& operands = instruction.operands;
    const std::size_t at = !operands.empty() && operands[0].is(Kind::group) ? 1 : 0;
    if (at >= operands.size() || !operands[at].is(Kind::symbol) || operands.size() > at + 2) {
      refuse(instruction, "the emulator does not model calls through a register");
    }
    const std::string name(operands[at].name);
    const Function* callee = module_.find_function(name);
    if (name == "__assertfail") {
      Instruction trap = branch_like(instruction);
      trap.opcode = "trap";
      trap.modifiers = {"assertion"};
      trap.operands.clear();
      append(frame, std::move(trap));
      return;
    }
    if (callee == nullptr || !callee->has_body || callee->is_entry) {
      refuse(instruction, "the emulator does not model the function " + name +
                              ", which the module only declares");
    }
    if (std::ranges::find(calling_, callee) != calling_.end()) {
      refuse(instruction, "the emulator does not model recursion: " + name + " calls itself");
    }
    ++calls_;
    static const Operand kNothing;
    Frame inner{*callee,
                {},
                static_cast<std::uint32_t>(out_.registers.size()),
                static_cast<std::uint32_t>(out_.branch_targets.size()),
                variables_of(*callee)};
    bind(frame, instruction, callee->results, at == 1 ? operands[0] : kNothing, inner);
    bind(frame, instruction, callee->parameters,
         at + 1 < operands.size() ? operands[at + 1] : kNothing, inner);
    const std::size_t skip = out_.body.size();
    if (instruction.guard >= 0) {
      append(frame, branch_like(instruction));
      out_.body[skip].guard_negated = !instruction.guard_negated;
    }
    splice(inner);
    if (instruction.guard >= 0) out_.body[skip].operands[0].value = here();
  }

  // The callee's parameters are the caller's variables: both are by value, and used once.
  void bind(const Frame& frame, const Instruction& call, const std::vector<Parameter>& parameters,
            const Operand& given, Frame& inner) {
    if (given.items.size() != parameters.size()) {
      refuse(call, std::to_string(given.items.size()) + " values in a call of " +
                       std::string(inner.function.name) + ", which has " +
                       std::to_string(parameters.size()));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      Operand value = given.items[i];
      if (!value.is(Kind::symbol) || parameters[i].in_register || !rename_symbol(frame, value) ||
          variables_[value.reg].bytes < parameters[i].bytes) {
        refuse(call, "the emulator models calls whose values are .param variables of their size");
      }
      inner.parameters[parameters[i].name] = value.reg;
    }
  }

  const Module& module_;
  const Function& entry_;
  std::shared_ptr<FlatFunction> flat_ = std::make_shared<FlatFunction>();
  Function out_;
  std::vector<Variable> variables_;
  std::vector<bool> was_parameter_;
  std::unordered_map<const Function*, std::uint32_t> placed_;
  std::vector<const Function*> calling_;
  std::size_t calls_ = 0;
  Ticker ticker_;
};

}  // namespace

std::shared_ptr<const FlatFunction> flatten_calls(const Module& module, const Function& entry) {
  const auto calls = [](const Instruction& instruction) { return instruction.opcode == "call"; };
  if (std::ranges::none_of(entry.body, calls)) return nullptr;
  return Flattener(module, entry).run();
}

}  // namespace kiln::runtime::emulator
