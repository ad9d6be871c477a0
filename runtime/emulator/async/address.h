// Addresses of asynchronous instructions: several an instruction, each in a space of its own.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/emulator/decode/decode.h"
#include "runtime/emulator/machine/machine.h"

namespace kiln::runtime::emulator {

struct AsyncAddress {
  Ref row = kNoRef;
  std::int64_t offset = 0;
  bool wide = true;            // rows of 64-bit lanes
  Space space = Space::none;   // none: generic
  bool own_block_only = true;  // .shared::cta: no other block of the cluster

  std::uint64_t at(const Warp& warp, int lane) const {
    const auto index = static_cast<std::size_t>(lane);
    const std::uint64_t base = wide ? warp.u64(row)[index] : warp.u32(row)[index];
    return base + static_cast<std::uint64_t>(offset);
  }
  // As registers hold shared addresses: rank and offset. Raises a fault for what is no shared
  // address, or another block's where only the own one is meant.
  std::uint32_t shared(const Warp& warp, int lane) const;
  // The host's address.
  std::uint64_t global(const Warp& warp, int lane) const;
};

// `space` names a modifier: "shared", "shared::cta", "shared::cluster", "global", "" for generic.
AsyncAddress decode_async_address(Decoder& decoder, const Operand& operand, std::string_view space);

// The host's bytes of shared memory, checked; a fault names the lane.
std::byte* shared_at(Cluster& cluster, std::uint32_t shared_address, std::uint64_t bytes,
                     unsigned align, int lane);
// The host's bytes of global memory, which the lane's unit reads or writes: alignment, and what
// find_global checks.
std::byte* global_at(const Warp& warp, std::uint64_t address, std::uint64_t bytes, unsigned align,
                     bool write, int lane);
void check_global_alignment(std::uint64_t address, std::uint64_t bytes, unsigned align, bool write,
                            int lane);

inline int rank_of(std::uint32_t shared_address) {
  return static_cast<int>(shared_address >> kRankShift);
}
inline std::uint32_t offset_of(std::uint32_t shared_address) {
  return shared_address & kSharedOffsetMask;
}

// The PTX line of the op that the warp is at.
std::uint32_t ptx_line(const Warp& warp);
// A later fault of an asynchronous unit in a block that has ended: its memory is another's by then.
void check_block_runs(Cluster& cluster, std::uint32_t shared_address, const char* what);

}  // namespace kiln::runtime::emulator
