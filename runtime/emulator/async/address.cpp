#include "runtime/emulator/async/address.h"

#include "runtime/emulator/memory/memory.h"

namespace kiln::runtime::emulator {

std::uint32_t AsyncAddress::shared(const Warp& warp, int lane) const {
  std::uint64_t address = at(warp, lane);
  if (space == Space::none) {
    if (resolve_generic(address) != Space::shared) {
      raise(Fault::out_of_bounds, hex(address) + " is no address of shared memory", lane);
    }
  } else if (address >> 32 != 0) {
    raise(Fault::out_of_bounds,
          hex(address) + " is no address in the shared space; a generic one needs cvta.to.shared",
          lane);
  }
  const auto result = static_cast<std::uint32_t>(address);
  if (own_block_only && rank_of(result) != warp.block().rank()) {
    raise(Fault::out_of_bounds,
          "shared address " + hex(result) + " belongs to block " + std::to_string(rank_of(result)) +
              " of the cluster; this instruction reaches only the memory of its own block, " +
              std::to_string(warp.block().rank()),
          lane);
  }
  return result;
}

std::uint64_t AsyncAddress::global(const Warp& warp, int lane) const {
  std::uint64_t address = at(warp, lane);
  if (resolve_generic(address) != Space::global) {
    raise(Fault::out_of_bounds, hex(address) + " is no address of global memory", lane);
  }
  return address;
}

AsyncAddress decode_async_address(Decoder& decoder, const Operand& operand,
                                  std::string_view space) {
  AsyncAddress address;
  Op scratch;
  address.wide = decoder.address(operand, scratch) == 8;
  address.row = scratch.a;
  address.offset = scratch.immediate;
  if (space.starts_with("shared")) address.space = Space::shared;
  if (space == "global") address.space = Space::global;
  address.own_block_only = space == "shared" || space == "shared::cta";
  if (!address.wide && address.space != Space::shared) {
    decoder.fail("a generic or global address needs a 64-bit register");
  }
  return address;
}

std::byte* shared_at(Cluster& cluster, std::uint32_t shared_address, std::uint64_t bytes,
                     unsigned align, int lane) {
  try {
    return shared_bytes(cluster, shared_address, bytes, align);
  } catch (RaisedFault& fault) {
    if (fault.lane < 0) fault.lane = lane;
    throw;
  }
}

void check_global_alignment(std::uint64_t address, std::uint64_t bytes, unsigned align, bool write,
                            int lane) {
  if (address % align != 0) {
    raise(Fault::misaligned,
          "global address " + hex(address) + " of an asynchronous " + (write ? "write" : "read") +
              " of " + std::to_string(bytes) + " bytes must be a multiple of " +
              std::to_string(align),
          lane);
  }
}

std::byte* global_at(const Warp& warp, std::uint64_t address, std::uint64_t bytes, unsigned align,
                     bool write, int lane) {
  check_global_alignment(address, bytes, align, write, lane);
  return find_global(warp, address, bytes, write, lane);
}

std::uint32_t ptx_line(const Warp& warp) {
  const Instruction* at = instruction_at(warp, warp.group().pc);
  return at != nullptr ? at->line : 0;
}

void check_block_runs(Cluster& cluster, std::uint32_t shared_address, const char* what) {
  const auto rank = static_cast<std::size_t>(rank_of(shared_address));
  if (rank >= cluster.blocks().size() || !cluster.blocks()[rank].done()) return;
  raise(Fault::in_flight, std::string(what) + " at " + hex(shared_address) +
                              " reaches the shared memory of block " + std::to_string(rank) +
                              " of the cluster after that block has ended");
}

}  // namespace kiln::runtime::emulator
