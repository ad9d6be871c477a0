// What a family of instructions sees of decoding: operands to rows, and the family table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/emulator/decode/program.h"
#include "runtime/emulator/machine/faults.h"

namespace kiln::runtime::emulator {

struct Allocation;

class Decoder {
 public:
  Decoder(Program& program, const Allocation& allocation, const GlobalVariables& globals);

  // The row of a source: a register, an immediate or a symbol's address as a constant row, a
  // special register that never changes for a lane. `type` gives a constant its width and meaning
  // (an integer given to an f32 op is an error, 0f… to a b32 op is its bits).
  Ref source(const Operand& operand, Type type);
  // The row of a destination register; kNoRef for the sink.
  Ref destination(const Operand& operand, Type type);
  // The index of a predicate register; constants 0/1 are not accepted. kNoRef for the sink.
  Ref predicate(const Operand& operand);
  // Rows of the elements of a vector operand (or of one scalar), appended to Program::lists.
  // Returns (first index, count).
  std::pair<std::uint32_t, std::uint32_t> sources(const Operand& operand, Type type);
  std::pair<std::uint32_t, std::uint32_t> destinations(const Operand& operand, Type type);
  // The type a register operand was declared with; Type::none for what is no register.
  Type register_type(const Operand& operand) const;
  // [base + offset]: sets op.a to a row of 64-bit addresses (op.flags is left alone) and
  // op.immediate to the offset. A 32-bit base register (shared) is zero-extended: then the
  // returned width is 4 and op.a a row of 32-bit addresses; a symbol or integer gives 8.
  int address(const Operand& operand, Op& op);

  std::uint32_t keep(std::unique_ptr<OpExtra> extra);  // for Op::extra
  Ref constant32(std::uint32_t bits);
  Ref constant64(std::uint64_t bits);

  Program& program() { return program_; }
  // The value of an operand that must be an integer literal.
  std::int64_t literal(const Operand& operand) const;
  // Fails with the instruction's line: what is wrong with it.
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void unknown() const;  // this combination of modifiers is not modelled
  void expect_operands(const Instruction& instruction, std::size_t least, std::size_t most) const;

  // Where .shared, .local and .param variables were placed.
  struct Placed {
    std::string_view name;
    Space space;
    std::uint64_t offset;
  };

  void set_current(const Instruction* instruction) { current_ = instruction; }

 private:
  void place(const Variable& variable);
  Ref symbol(const Operand& operand, Type type);
  Ref shared_address(std::uint32_t offset);

  Program& program_;
  const Allocation& allocation_;
  const GlobalVariables& globals_;
  const Instruction* current_ = nullptr;
  std::vector<Placed> placed_;
  std::unordered_map<std::uint64_t, Ref> constants32_, constants64_, shared_rows_;
};

// Fills `op` (guard and debug info are set by the caller): the handler and its operands.
// Calls decoder.unknown() for modifiers that it does not model.
using DecodeFunction = void (*)(Decoder& decoder, const Instruction& instruction, Op& op);

struct OpcodeRow {
  std::string_view opcode;
  DecodeFunction decode;
};

// One table per concern; decode.cpp searches them all. An opcode stands in one table only.
std::span<const OpcodeRow> arithmetic_opcodes();  // add, mul, fma, shl, lop3, ex2, …: all types
std::span<const OpcodeRow> move_opcodes();        // mov, selp, set, setp, prmt, cvt, cvta, isspacep
std::span<const OpcodeRow> control_opcodes();     // bra, ret, exit, trap, bar, barrier, nanosleep
std::span<const OpcodeRow> memory_opcodes();      // ld, st, ldu, atom, red, fence, membar, prefetch
std::span<const OpcodeRow> warp_opcodes();        // shfl, vote, match, redux, activemask, elect
std::span<const OpcodeRow> matrix_opcodes();      // mma, wgmma, ldmatrix, stmatrix, movmatrix
std::span<const OpcodeRow> async_opcodes();       // cp, mbarrier, mapa, setmaxnreg, griddepcontrol

}  // namespace kiln::runtime::emulator
