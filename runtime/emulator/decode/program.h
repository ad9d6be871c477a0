// A kernel as the executor runs it: flat ops over numbered register slots.
//
// Every PTX register of up to 32 bits lives in one slot, a row of 32 lanes of 4 bytes; narrower
// values are zero-extended. A 64-bit register takes two slots, one row of 32 lanes of 8 bytes.
// Predicates are 32-bit lane masks of their own. Immediates are rows too, so that every operand of
// every op is a row. Registers whose lives do not overlap share slots (register_allocation.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/emulator/ptx/ptx.h"
#include "runtime/emulator/ptx/types.h"

namespace kiln::runtime::emulator {

inline constexpr int kLanes = 32;
using Mask = std::uint32_t;  // bit l = lane l
inline constexpr Mask kAllLanes = 0xffffffffu;

// A row of registers (an index of 128-byte slots) or of constants (kConstantRow set).
using Ref = std::uint32_t;
inline constexpr Ref kConstantRow = 0x80000000u;
inline constexpr Ref kNoRef = 0xffffffffu;  // absent operand, or the sink _

class Warp;
struct FlatFunction;  // calls.h
struct Op;

// What became of an op.
enum class Flow : std::uint8_t {
  next,     // go on with the op behind it
  jump,     // the handler has set the group's pc, or split the group
  blocked,  // nothing done: try the same op again when something has changed
  yield,  // done, go on with the op behind it, but let others run first (nanosleep, a failed test)
  exit    // the lanes of `mask` have ended
};

// `mask`: the lanes of the running group whose guard holds; never 0.
using Handler = Flow (*)(Warp& warp, const Op& op, Mask mask);

struct Op {
  Handler run = nullptr;
  std::int32_t guard = -1;  // predicate index; -1 = none
  bool guard_negated = false;
  bool matrix = false;     // touches registers of wgmma: watch_matrix (async.h) comes first
  Type type = Type::none;  // for handlers that are not specialised by type
  std::uint8_t flags = 0;  // the handler's own
  std::uint8_t size = 0;   // the handler's own: bytes of an access, vector length
  // Rows, or predicate indices where the op's PTX operand is a predicate.
  Ref d = kNoRef, a = kNoRef, b = kNoRef, c = kNoRef;
  std::uint32_t list = 0, list_size = 0;  // further refs: Program::lists[list ...]
  std::int64_t immediate = 0;             // address offset, lop3 table, jump target
  std::uint32_t extra = 0;                // index into the family's own table in Program
};

struct SharedVariable {
  std::string_view name;
  std::uint32_t offset = 0;  // in the block's shared memory
  std::uint64_t bytes = 0;
};

// Beyond the ops' fixed fields, what bulky instructions (wgmma, bulk tensor copies) need is kept in
// objects of their family's own making; Op::extra is the index.
struct OpExtra {
  virtual ~OpExtra() = default;
};

// A row that holds the address of a shared variable: it differs between the blocks of a cluster, so
// each warp fills it in when it starts. Two slots, 64-bit lanes.
struct SharedAddressRow {
  Ref row = 0;
  std::uint32_t offset = 0;
};

struct Program {
  std::shared_ptr<const Module> module;
  const Function* function = nullptr;  // the module's, or `flat`
  std::string kernel;
  std::vector<Op> ops;  // one per instruction of function->body, and an exit
  std::vector<Ref> lists;
  std::vector<std::unique_ptr<OpExtra>> extras;
  std::vector<std::array<std::uint32_t, kLanes>> constants;  // rows; 64-bit ones take two
  std::uint32_t slots = 0;                                   // rows a warp needs
  std::uint32_t predicates = 0;                              // masks a warp needs
  std::uint32_t local_bytes = 0;                             // per lane
  std::uint32_t shared_bytes = 0;                            // static, from kSharedBase on
  std::vector<SharedVariable> shared_variables;
  std::vector<SharedAddressRow> shared_addresses;
  bool uses_wgmma = false;
  std::unique_ptr<OpExtra> matrix_registers;  // MatrixRegisters (matrix_groups.h) of such a kernel
  std::shared_ptr<const FlatFunction> flat;   // of a kernel that calls functions
};

// For a decoded program that uses wgmma: fills in matrix_registers and Op::matrix.
void mark_matrix_registers(Program& program);

// Decodes one entry of a module. Addresses of .global and .const variables are those of `globals`.
class GlobalVariables;
Program decode(std::shared_ptr<const Module> module, std::string_view entry,
               const GlobalVariables& globals);

}  // namespace kiln::runtime::emulator
