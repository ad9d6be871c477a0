// A PTX module as text gives it: names resolved to registers, labels and variables, opcodes not
// yet understood. Grammar: PTX ISA, "Syntax" and "Instruction operands". Views point into the
// module's own text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/emulator/ptx/types.h"

namespace kiln::runtime::emulator {

// One position that .loc names: a line of the source that the PTX was compiled from.
struct SourceLocation {
  std::uint32_t file = 0;  // index into Module::files
  std::uint32_t line = 0;
  std::uint32_t inlined_at = 0;  // index into Module::locations of the call; 0 = none
};

// A symbol that is a parameter, a variable of the module or a function: only its name tells which,
// and a parameter hides what the module calls the same.
inline constexpr std::uint32_t kNotOfBody = 0xffffffffu;

struct Operand {
  enum class Kind : std::uint8_t {
    none,
    reg,      // %r1, or %r1.x's parent: `reg`
    sink,     // _
    integer,  // `value`
    real,     // `value` holds the bits: of an f32 where `type` says so, else of an f64
    symbol,   // a variable or function, plus the offset `value`
    // `value`: index in Function::body of the instruction it stands before (body.size() at the
    // end), of brx: index into Function::branch_targets
    label,
    special,  // %tid.x, %laneid, WARP_SZ: `name`
    address,  // [base + value]: items[0] is the base (reg, symbol, integer), the rest follow it
    vector,   // {a, b, ...}
    pair,     // p|q
    group     // (a, b): a call's results or arguments
  };
  Kind kind = Kind::none;
  bool negated = false;    // !p, or -x of a register
  Type type = Type::none;  // of a real
  // Index into Function::registers; of a symbol: into Function::variables, or kNotOfBody.
  std::uint32_t reg = 0;
  std::int64_t value = 0;
  std::string_view name;  // as written: register, symbol, label or special register
  std::vector<Operand> items;

  bool is(Kind which) const { return kind == which; }
};

struct Instruction {
  std::string_view opcode;                  // "mma"
  std::vector<std::string_view> modifiers;  // "sync", "aligned", ...; "shared::cta" is one
  std::vector<Operand> operands;
  std::int32_t guard = -1;  // register index of @p; -1 = none
  bool guard_negated = false;
  std::uint32_t line = 0;      // of the PTX text, from 1
  std::uint32_t location = 0;  // index into Module::locations; 0 = none

  bool has(std::string_view modifier) const;
  // The last of the modifiers that is a type, or Type::none: of `cvt.rn.f32.s32`, s32.
  Type type() const;
  // All modifiers that are types, in order.
  std::vector<Type> types() const;
  std::string text() const;  // "mma.sync.aligned…", the opcode with its modifiers
};

struct Register {
  std::string_view name;
  Type type = Type::none;
};

struct Variable {
  std::string_view name;
  Space space = Space::none;
  Type type = Type::none;
  std::uint32_t align = 1;
  std::uint64_t bytes = 0;  // 0 for an unsized extern array: dynamic shared memory
  bool is_extern = false;
  std::vector<std::byte> initial;  // zeros beyond its end
  // 8-byte words of `initial` that hold the address of another variable.
  struct Relocation {
    std::uint64_t at = 0;
    std::string_view name;
    std::int64_t offset = 0;
    bool generic = false;  // generic(name)
  };
  std::vector<Relocation> relocations;
  std::uint32_t line = 0;
};

struct Parameter {
  std::string_view name;
  Type type = Type::none;
  std::uint32_t align = 1;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the parameter block
  // `.reg` parameters of a .func with a body are registers of it.
  bool in_register = false;
  std::uint32_t reg = 0;  // index into Function::registers
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  std::vector<Parameter> parameters;
  std::vector<Parameter> results;  // of a .func
  std::uint64_t parameter_bytes = 0;
  std::vector<Register> registers;  // all scopes; nested scopes' names may repeat
  std::vector<Variable> variables;  // .shared, .local, .param of any scope of the body
  std::vector<Instruction> body;
  std::vector<std::vector<std::uint32_t>> branch_targets;  // of .branchtargets, by label value
  // Performance directives; 0 = absent.
  std::uint32_t max_threads[3] = {}, required_threads[3] = {}, required_cluster[3] = {};
  std::uint32_t max_registers = 0, min_blocks = 0;
  std::uint32_t line = 0;
};

struct Module {
  std::shared_ptr<const std::string> text;  // what all the views point into
  int version_major = 0, version_minor = 0;
  std::string_view target;                // "sm_90a"
  std::vector<std::string> files;         // .file table; index 0 unused
  std::vector<SourceLocation> locations;  // index 0 unused
  std::vector<Variable> variables;        // .global, .const, .shared of module scope
  std::vector<Function> functions;

  const Function* find_function(std::string_view name) const;
  // "attention/softmax.cuh:31 (inlined at …)", or empty.
  std::string location_text(std::uint32_t location) const;
};

// Throws PtxError with the line. Accepts whole modules as NVRTC, nvcc and clang write them.
Module parse_ptx(std::string_view text);

}  // namespace kiln::runtime::emulator
