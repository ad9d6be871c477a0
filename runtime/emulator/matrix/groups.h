// wgmma of one warp in flight: the groups that commit_group forms, and whose registers they hold.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/emulator/decode/program.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {

// A kernel's registers that wgmma reads or writes, and those that plain moves copy from or to them;
// numbered, and by op. Made by mark_matrix_registers.
struct MatrixRegisters : OpExtra {
  static constexpr std::uint16_t kNone = 0xffff;
  struct Use {
    std::uint16_t id;
    bool write;
  };
  struct Uses {
    std::uint32_t first = 0, count = 0;
    // Of a plain mov of 32 bits that writes one of them. A source that is none of them is kNone.
    bool plain_mov = false, from_literal = false;
    std::uint16_t to = kNone, from = kNone;
  };
  std::vector<std::string_view> names;  // by id
  std::vector<std::uint16_t> id_of;     // by index in Function::registers
  std::vector<Uses> ops;                // by op
  std::vector<Use> uses;
};

// A wgmma or, since compilers leave moves of accumulators between them that become no instruction,
// a mov of a register in flight.
struct MatrixWork {
  const Op* op = nullptr;
  bool is_mov = false;
  Mask mask = 0;               // of a mov
  bool accumulate = false;     // scale-d
  std::uint64_t a = 0, b = 0;  // descriptors
  std::uint64_t group = 0;
  std::unique_ptr<Shadow::Operation> operation;  // null without checks
};

struct MatrixGroups {
  struct Register {
    std::uint64_t written = 0;  // time of the last write by an instruction other than wgmma
    // The last group that writes (reads) it; in flight while that is beyond `retired`.
    std::uint64_t write_group = 0, read_group = 0;
    // Which accumulator it is there: products of one shape may follow each other unwaited.
    std::uint32_t shape = 0, position = 0;
  };
  std::vector<Register> registers;  // by id
  std::deque<MatrixWork> works;
  std::uint64_t committed = 0;  // groups so far; work issued now belongs to the next
  std::uint64_t retired = 0;    // groups waited for
  std::uint64_t time = 0, fence_time = 0;

  bool being_written(std::uint16_t id) const { return registers[id].write_group > retired; }
  bool being_read(std::uint16_t id) const { return registers[id].read_group > retired; }
};

// The warp's own, made when first asked for.
MatrixGroups& matrix_groups(Warp& warp);
const MatrixRegisters& matrix_registers(const Warp& warp);

// Accumulators and A's registers, by id, of a wgmma that is issued now. Raises Fault::in_flight
// where it may not touch them. `shape` tells accumulators of different shapes apart.
void claim_registers(Warp& warp, std::span<const std::uint16_t> accumulators,
                     std::span<const std::uint16_t> a, std::uint32_t shape);
// Takes a claimed wgmma into the group that is being formed; eager: does it now.
void issue(Warp& warp, MatrixWork work);
// Does it: what matrix_wgmma.cpp knows.
void execute_product(Warp& warp, const MatrixWork& work);

void fence_matrix(Warp& warp);
void commit_matrix(Warp& warp);
void wait_matrix(Warp& warp, std::uint64_t pending);

}  // namespace kiln::runtime::emulator
