// cp.async: per-thread copies of 4 to 16 bytes from global to shared memory, and their groups.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/emulator/async/async.h"
#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/shadow/shadow.h"

namespace kiln::runtime::emulator {

// The copies that one instruction has begun for the lanes of a warp.
struct CopyBatch {
  Mask pending = 0;   // lanes that have not waited for theirs
  Mask unlanded = 0;  // lanes whose copy isn't done yet: late schedule
  std::uint8_t bytes = 0;
  std::uint64_t sequence = 0;
  std::uint32_t line = 0;
  std::array<std::uint32_t, kLanes> group;  // of the lane's own groups
  std::array<const std::byte*, kLanes> source;
  std::array<std::byte*, kLanes> destination;
  std::array<std::uint8_t, kLanes> source_bytes;  // the rest is filled with zeros
  std::shared_ptr<const Shadow::Operation> operation;

  void land(Mask lanes);
};

struct CopyGroups {
  std::array<std::uint32_t, kLanes> committed{};  // groups so far
  std::uint64_t next_sequence = 0;
  std::vector<CopyBatch> batches;  // by age

  // Lands what lanes of `mask` began before `sequence`, for an mbarrier.
  void land_before(std::uint64_t sequence, Mask mask);
};

void decode_cp_async(Decoder& decoder, const Instruction& instruction, Op& op);

}  // namespace kiln::runtime::emulator
