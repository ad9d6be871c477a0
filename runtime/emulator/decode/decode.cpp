#include "runtime/emulator/decode/decode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <unordered_set>

#include "runtime/emulator/decode/calls.h"
#include "runtime/emulator/decode/register_allocation.h"
#include "runtime/emulator/machine/machine.h"
#include "runtime/emulator/machine/polling.h"
#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {
namespace {

const std::unordered_map<std::string_view, DecodeFunction>& opcode_map() {
  static const auto* const map = [] {
    auto* built = new std::unordered_map<std::string_view, DecodeFunction>;
    for (auto table : {arithmetic_opcodes(), move_opcodes(), control_opcodes(), memory_opcodes(),
                       warp_opcodes(), matrix_opcodes(), async_opcodes()}) {
      for (const OpcodeRow& row : table) built->emplace(row.opcode, row.decode);
    }
    return built;
  }();
  return *map;
}

constexpr bool is_wide(Type type, int bits) { return type != Type::none && bits == 64; }

std::uint64_t aligned(std::uint64_t offset, std::uint64_t align) {
  const std::uint64_t step = std::max<std::uint64_t>(align, 1);
  return (offset + step - 1) / step * step;
}

void collect_names(const Operand& operand, std::unordered_set<std::string_view>& names) {
  if (operand.is(Operand::Kind::symbol)) names.insert(operand.name);
  for (const Operand& item : operand.items) collect_names(item, names);
}

// The variables of module scope that a kernel names, as only these are charged to it: ptxas leaves
// out the shared memory of other kernels, but for the alignment of unsized extern arrays.
std::vector<Variable> named_variables(const Module& module, const Function& function) {
  std::unordered_set<std::string_view> names;
  for (const Instruction& instruction : function.body) {
    for (const Operand& operand : instruction.operands) collect_names(operand, names);
  }
  std::vector<Variable> named;
  std::ranges::copy_if(module.variables, std::back_inserter(named), [&](const Variable& variable) {
    const bool placed = variable.space == Space::shared || variable.space == Space::local;
    return placed && names.contains(variable.name);
  });
  return named;
}

// Dynamic shared memory (an unsized extern array) begins behind all static variables.
void place_dynamic(Program& program, std::vector<Decoder::Placed>& placed,
                   std::span<const Variable> variables) {
  for (const Variable& variable : variables) {
    if (variable.space != Space::shared || variable.bytes != 0) continue;
    const std::uint64_t offset =
        aligned(kSharedBase + program.shared_bytes, std::max<std::uint64_t>(variable.align, 16));
    program.shared_bytes = static_cast<std::uint32_t>(offset - kSharedBase);
    placed.push_back({variable.name, Space::shared, offset});
  }
}

}  // namespace

Decoder::Decoder(Program& program, const Allocation& allocation, const GlobalVariables& globals)
    : program_(program), allocation_(allocation), globals_(globals) {
  const std::vector<Variable> named = named_variables(*program.module, *program.function);
  for (const Variable& variable : named) place(variable);
  for (const Variable& variable : program.function->variables) place(variable);
  place_dynamic(program, placed_, program.module->variables);
  place_dynamic(program, placed_, program.function->variables);
  for (const Parameter& parameter : program.function->parameters) {
    placed_.push_back({parameter.name, Space::param, parameter.offset});
  }
}

void Decoder::place(const Variable& variable) {
  if (variable.space == Space::shared && variable.bytes > 0) {
    const std::uint64_t offset = aligned(kSharedBase + program_.shared_bytes, variable.align);
    if (offset + variable.bytes > kSharedOffsetMask) {
      raise_ptx(variable.line, "shared variables larger than any block's memory");
    }
    placed_.push_back({variable.name, Space::shared, offset});
    program_.shared_bytes = static_cast<std::uint32_t>(offset + variable.bytes - kSharedBase);
    program_.shared_variables.push_back(
        {variable.name, static_cast<std::uint32_t>(offset), variable.bytes});
  } else if (variable.space == Space::local) {
    const std::uint64_t offset = aligned(program_.local_bytes, variable.align);
    // 512 KiB a thread is the hardware's limit.
    if (offset + variable.bytes > 512 * 1024) {
      raise_ptx(variable.line, "more than 512 KiB of local memory a thread");
    }
    placed_.push_back({variable.name, Space::local, offset});
    program_.local_bytes = static_cast<std::uint32_t>(offset + variable.bytes);
  }
}

void Decoder::fail(const std::string& message) const {
  Site site;
  site.kernel = program_.kernel;
  if (current_ != nullptr) {
    site.ptx_line = current_->line;
    site.instruction = current_->text();
    site.source = program_.module->location_text(current_->location);
  }
  throw EmulatorError(Fault::bad_ptx, message, site);
}

void Decoder::unknown() const {
  Site site;
  site.kernel = program_.kernel;
  site.ptx_line = current_->line;
  site.source = program_.module->location_text(current_->location);
  throw EmulatorError(Fault::unknown_instruction, "the emulator does not model " + current_->text(),
                      site);
}

void Decoder::expect_operands(const Instruction& instruction, std::size_t least,
                              std::size_t most) const {
  const std::size_t count = instruction.operands.size();
  if (count >= least && count <= most) return;
  fail("expected " + std::to_string(least) +
       (most > least ? " to " + std::to_string(most) : std::string()) + " operands, got " +
       std::to_string(count));
}

std::int64_t Decoder::literal(const Operand& operand) const {
  if (!operand.is(Operand::Kind::integer)) fail("expected an integer literal");
  return operand.value;
}

Type Decoder::register_type(const Operand& operand) const {
  return operand.is(Operand::Kind::reg) ? program_.function->registers[operand.reg].type
                                        : Type::none;
}

Ref Decoder::constant32(std::uint32_t bits) {
  const auto [at, is_new] = constants32_.try_emplace(bits, 0);
  if (is_new) {
    at->second = kConstantRow | static_cast<Ref>(program_.constants.size());
    program_.constants.emplace_back().fill(bits);
  }
  return at->second;
}

Ref Decoder::constant64(std::uint64_t bits) {
  const auto [at, is_new] = constants64_.try_emplace(bits, 0);
  if (is_new) {
    at->second = kConstantRow | static_cast<Ref>(program_.constants.size());
    std::array<std::uint64_t, kLanes / 2> half;
    half.fill(bits);
    for (int i = 0; i < 2; ++i) {
      std::memcpy(program_.constants.emplace_back().data(), half.data(), sizeof half);
    }
  }
  return at->second;
}

Ref Decoder::shared_address(std::uint32_t offset) {
  const auto [at, is_new] = shared_rows_.try_emplace(offset, program_.slots);
  if (is_new) {
    program_.shared_addresses.push_back({at->second, offset});
    program_.slots += 2;
  }
  return at->second;
}

Ref Decoder::symbol(const Operand& operand, Type type) {
  if (type != Type::none && info(type).bits < 32) fail("an address needs 32 or 64 bits");
  const bool wide = type == Type::none || is_wide(type, info(type).bits);
  // Function scope shadows module scope.
  const auto found = std::find_if(placed_.rbegin(), placed_.rend(),
                                  [&](const Placed& p) { return p.name == operand.name; });
  if (found == placed_.rend()) {
    const std::uint64_t address = globals_.address_of(operand.name);
    if (address == 0) fail("unknown symbol " + std::string(operand.name));
    if (!wide) fail("the address of " + std::string(operand.name) + " needs 64 bits");
    return constant64(address + static_cast<std::uint64_t>(operand.value));
  }
  const std::uint64_t offset = found->offset + static_cast<std::uint64_t>(operand.value);
  if (found->space == Space::shared && wide) {
    return shared_address(static_cast<std::uint32_t>(offset));
  }
  if (found->space == Space::shared) fail("take a shared variable's address with mov.u64");
  return wide ? constant64(offset) : constant32(static_cast<std::uint32_t>(offset));
}

Ref Decoder::source(const Operand& operand, Type type) {
  const int bits = info(type).bits;
  switch (operand.kind) {
    case Operand::Kind::reg: {
      const int have = info(register_type(operand)).bits;
      if (register_type(operand) == Type::pred) {
        fail("expected a value, got the predicate " + std::string(operand.name));
      }
      if ((have > 32 || bits > 32) && have != bits) {
        fail(std::string(operand.name) + " has " + std::to_string(have) + " bits, expected " +
             std::to_string(bits));
      }
      return allocation_.row[operand.reg];
    }
    case Operand::Kind::integer: {
      if (info(type).type_class == TypeClass::real && bits >= 32) {
        fail("an integer literal where a floating-point one is expected");
      }
      if (bits > 32) return constant64(static_cast<std::uint64_t>(operand.value));
      const std::uint32_t keep = bits >= 32 ? ~0u : (1u << bits) - 1;
      return constant32(static_cast<std::uint32_t>(operand.value) & keep);
    }
    case Operand::Kind::real: {
      const auto value = static_cast<std::uint64_t>(operand.value);
      if (operand.type == Type::f32) {
        if (bits != 32) fail("a 32-bit floating-point literal for " + std::string(info(type).name));
        return constant32(static_cast<std::uint32_t>(value));
      }
      if (bits == 64) return constant64(value);
      double number;
      std::memcpy(&number, &value, 8);
      const auto narrow = static_cast<float>(number);
      std::uint32_t narrow_bits;
      std::memcpy(&narrow_bits, &narrow, 4);
      return constant32(narrow_bits);
    }
    case Operand::Kind::symbol:
      return symbol(operand, type);
    case Operand::Kind::special:
      if (operand.name == "WARP_SZ") return constant32(kLanes);
      fail("the special register " + std::string(operand.name) + " is read with mov");
    default:
      fail("expected a register or a literal");
  }
}

Ref Decoder::destination(const Operand& operand, Type type) {
  if (operand.is(Operand::Kind::sink)) return kNoRef;
  if (!operand.is(Operand::Kind::reg)) fail("expected a register to write to");
  return source(operand, type);
}

Ref Decoder::predicate(const Operand& operand) {
  if (operand.is(Operand::Kind::sink)) return kNoRef;
  if (register_type(operand) != Type::pred) fail("expected a predicate register");
  return allocation_.row[operand.reg];
}

std::pair<std::uint32_t, std::uint32_t> Decoder::sources(const Operand& operand, Type type) {
  const auto first = static_cast<std::uint32_t>(program_.lists.size());
  if (!operand.is(Operand::Kind::vector)) {
    program_.lists.push_back(source(operand, type));
    return {first, 1};
  }
  for (const Operand& item : operand.items) {
    program_.lists.push_back(item.is(Operand::Kind::sink) ? kNoRef : source(item, type));
  }
  return {first, static_cast<std::uint32_t>(operand.items.size())};
}

std::pair<std::uint32_t, std::uint32_t> Decoder::destinations(const Operand& operand, Type type) {
  const auto first = static_cast<std::uint32_t>(program_.lists.size());
  if (!operand.is(Operand::Kind::vector)) {
    program_.lists.push_back(destination(operand, type));
    return {first, 1};
  }
  for (const Operand& item : operand.items) program_.lists.push_back(destination(item, type));
  return {first, static_cast<std::uint32_t>(operand.items.size())};
}

int Decoder::address(const Operand& operand, Op& op) {
  if (!operand.is(Operand::Kind::address) || operand.items.empty()) fail("expected an address");
  op.immediate = operand.value;
  const Operand& base = operand.items[0];
  switch (base.kind) {
    case Operand::Kind::reg: {
      const int bits = info(register_type(base)).bits;
      if (bits != 32 && bits != 64) fail("an address register needs 32 or 64 bits");
      op.a = allocation_.row[base.reg];
      return bits / 8;
    }
    case Operand::Kind::symbol:
      op.a = symbol(base, Type::u64);
      return 8;
    case Operand::Kind::integer:
      op.a = constant64(static_cast<std::uint64_t>(base.value));
      return 8;
    default:
      fail("expected a register, a variable or a number as an address");
  }
}

std::uint32_t Decoder::keep(std::unique_ptr<OpExtra> extra) {
  program_.extras.push_back(std::move(extra));
  return static_cast<std::uint32_t>(program_.extras.size() - 1);
}

Program decode(std::shared_ptr<const Module> module, std::string_view entry,
               const GlobalVariables& globals) {
  Program program;
  program.module = std::move(module);
  program.function = program.module->find_function(entry);
  program.kernel = std::string(entry);
  if (program.function == nullptr || !program.function->is_entry || !program.function->has_body) {
    throw EmulatorError(Fault::bad_launch,
                        "the module has no kernel named '" + std::string(entry) + "'");
  }
  program.flat = flatten_calls(*program.module, *program.function);
  if (program.flat) program.function = &program.flat->function;
  const Function& function = *program.function;
  const Allocation allocation = allocate_registers(function);
  program.slots = allocation.slots + (allocation.slots & 1);  // 64-bit rows follow
  program.predicates = allocation.predicates;
  Decoder decoder(program, allocation, globals);
  program.ops.reserve(function.body.size() + 1);
  Ticker ticker;
  for (const Instruction& instruction : function.body) {
    ticker.tick();
    decoder.set_current(&instruction);
    const auto found = opcode_map().find(instruction.opcode);
    if (found == opcode_map().end()) decoder.unknown();
    Op op;
    if (instruction.guard >= 0) {
      const auto reg = static_cast<std::size_t>(instruction.guard);
      if (function.registers[reg].type != Type::pred) decoder.fail("a guard must be a predicate");
      op.guard = static_cast<std::int32_t>(allocation.row[reg]);
      op.guard_negated = instruction.guard_negated;
    }
    found->second(decoder, instruction, op);
    program.uses_wgmma = program.uses_wgmma || instruction.opcode == "wgmma";
    program.ops.push_back(op);
  }
  Op end;  // a body may end without ret
  end.run = [](Warp&, const Op&, Mask) { return Flow::exit; };
  program.ops.push_back(end);
  if (program.uses_wgmma) mark_matrix_registers(program);
  return program;
}

}  // namespace kiln::runtime::emulator
